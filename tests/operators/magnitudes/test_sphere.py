import math

import pytest
import torch

from hypersphere.operators import Linear
from hypersphere.operators.magnitudes import Sphere
from tests.operators.contracts import BoundedContract, FormulaContract, MagnitudeContract


class TestSphere(BoundedContract, MagnitudeContract):
    magnitude = Sphere(alpha=1.5)

    def formula(self, w_norm, x_norm):
        return 1.5

    @pytest.mark.parametrize("scale", [1e-4, 1.0, 1e12])
    def test_the_length_of_the_input_does_not_matter(self, scale):
        layer, x = self.layer(bias=False, dtype=torch.float64)
        assert torch.allclose(layer(scale * x), layer(x), atol=1e-12)

    def test_an_input_that_overflows_is_not_silent(self):
        assert Linear(4, 2)(torch.full((1, 4), 1e30)).isnan().all()

    @pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
    def test_refuses(self, alpha):
        with pytest.raises(ValueError, match="alpha must be a number > 0, got"):
            Sphere(alpha)


class TestWeightedSphere(FormulaContract):
    """α‖w‖·g(θ), the example in 4.3.5."""

    magnitude = Sphere(weighted="linear")

    def formula(self, w_norm, x_norm):
        return w_norm
