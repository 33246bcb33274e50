import numpy as np
import pytest

from hypersphere.operators.magnitudes import Seg
from tests.operators.contracts import MagnitudeContract


class TestSeg(MagnitudeContract):
    magnitude = Seg(alpha=1.5, beta=0.25, radius=6.0, learnable_radius=False)

    def formula(self, w_norm, x_norm):
        return np.where(x_norm <= 6, 1.5 * x_norm, 0.25 * x_norm + 1.5 * 6 - 0.25 * 6)

    @pytest.mark.parametrize("beta", [-0.1, float("nan")])
    def test_refuses(self, beta):
        with pytest.raises(ValueError, match="beta must be a number ≥ 0, got"):
            Seg(beta=beta)
