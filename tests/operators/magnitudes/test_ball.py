import numpy as np
import pytest
import torch

from hypersphere.operators.magnitudes import Ball, Seg
from tests.operators.contracts import BoundedContract, MagnitudeContract


class TestBall(BoundedContract, MagnitudeContract):
    magnitude = Ball(alpha=1.5, radius=6.0, learnable_radius=False)

    def formula(self, w_norm, x_norm):
        return 1.5 * np.minimum(x_norm, 6) / 6

    def test_is_a_special_case_of_seg(self):
        norms = torch.linspace(0, 20, 101, dtype=torch.float64)
        seg = Seg(alpha=1.5 / 6, beta=0.0, radius=6.0, learnable_radius=False)
        assert torch.allclose(seg.radial(norms), self.magnitude.radial(norms), atol=1e-15)
        assert torch.allclose(seg.gain(norms), self.magnitude.gain(norms), atol=1e-15)

    def test_refuses(self):
        with pytest.raises(ValueError, match="radius must be a number > 0, got 0"):
            Ball(radius=0.0)
        with pytest.raises(ValueError, match="weighted must be one of None, 'linear' for Ball, got 'tanh_product'"):
            Ball(weighted="tanh_product")
