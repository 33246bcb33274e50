import math

import numpy as np
import pytest
import torch

from hypersphere.objectives.margins import Clipped, Shrunk
from tests.objectives.contracts import ANGLES, MarginContract


class TestClipped(MarginContract):
    margin = Clipped(1.5)

    def formula(self, theta):
        return np.cos(np.minimum(1.5 * theta, math.pi))


class TestShrunk(MarginContract):
    margin = Shrunk(1.5)
    formula = staticmethod(np.cos)

    def test_leaves_the_others_alone(self):
        """This margin brings the other classes nearer: cos(θ/m)."""
        found = self.margin.others(torch.from_numpy(np.cos(ANGLES))[None])
        assert np.abs(found[0].numpy() - np.cos(ANGLES / 1.5)).max() <= 1e-7


@pytest.mark.parametrize("kind", [Clipped, Shrunk])
@pytest.mark.parametrize("m", [0.5, 100, math.nan])
def test_refuses(kind, m):
    with pytest.raises(ValueError, match="margin m must be a number ≥ 1 and below 100"):
        kind(m)


@pytest.mark.parametrize("kind", [Clipped, Shrunk])
def test_m_one_is_no_margin(kind):
    cos = torch.linspace(-1, 1, 101)
    assert torch.equal(kind(1).target(cos), cos)
    assert torch.equal(kind(1).others(cos[None]), cos[None])
