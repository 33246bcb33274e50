import math

import numpy as np
import pytest
import torch

from hypersphere.objectives.margins import Context, MagnitudeAware, QualityAdaptive
from tests.objectives.contracts import ANGLES, MarginContract


class TestQualityAdaptive(MarginContract):
    margin = QualityAdaptive(0.4).eval()

    def formula(self, theta):
        return np.cos(theta) - 0.4

    @pytest.mark.parametrize("norm", [0.0, 12.0, 20.0, 70.0, 1e4])
    def test_any_quality_is_decreasing_and_never_easier_than_the_cosine(self, norm):
        margin = QualityAdaptive(0.4).eval()
        margin.deviation.fill_(10.0)
        psi = margin.target(torch.from_numpy(np.cos(ANGLES)), Context(norms=torch.full((len(ANGLES),), norm).double()))
        assert (psi.diff() <= 1e-9).all()
        assert (psi.numpy() <= np.cos(ANGLES) + 1e-9).all()


class TestMagnitudeAware(MarginContract):
    margin = MagnitudeAware()

    def formula(self, theta):
        return np.where(theta + 0.45 <= math.pi, np.cos(theta + 0.45), -np.cos(theta + 0.45) - 2)

    def test_the_margin_is_linear_between_its_ends(self):
        found = self.margin.strength(torch.tensor([1.0, 10.0, 35.0, 110.0, 1e9]))
        assert found.tolist() == pytest.approx([0.45, 0.45, 0.5375, 0.8, 0.8])

    def test_without_norms_there_is_no_penalty(self):
        assert self.margin.penalty(Context()) is None
