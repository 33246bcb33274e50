import math

import numpy as np
import pytest
import torch

from hypersphere.angular import Power
from hypersphere.objectives.margins import Context, TwoSided
from tests.objectives.contracts import MarginContract


class TestTwoSided(MarginContract):
    margin = TwoSided(0.3)

    def formula(self, theta):
        return np.cos(theta) - 0.3

    def test_leaves_the_others_alone(self):
        """This margin raises the other classes by as much as it lowers the target."""
        cos = torch.rand(3, 4)
        assert torch.allclose(self.margin.others(cos), cos + 0.3)
        assert torch.allclose(self.margin.others(cos, Context(Power(3))), Power(3)(cos) + 0.3)


@pytest.mark.parametrize("m", [-0.1, math.nan])
def test_refuses(m):
    with pytest.raises(ValueError, match="margin m must be a number ≥ 0"):
        TwoSided(m)
