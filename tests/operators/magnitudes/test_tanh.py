import numpy as np
import pytest
import torch

from hypersphere import angular
from hypersphere.operators import Conv2d, Linear
from hypersphere.operators.magnitudes import Ball, Tanh
from tests.operators.contracts import BoundedContract, FormulaContract, MagnitudeContract


class TestTanh(BoundedContract, MagnitudeContract):
    magnitude = Tanh(alpha=1.5, radius=6.0, learnable_radius=False)

    def formula(self, w_norm, x_norm):
        return 1.5 * np.tanh(x_norm / 6)

    def test_never_exceeds_the_ball_it_smooths(self):
        norms = torch.linspace(0, 20, 101)
        assert (self.magnitude.radial(norms) <= Ball(1.5, 6.0, learnable_radius=False).radial(norms)).all()


class TestTanhOfTheProduct(BoundedContract, FormulaContract):
    """Eq. 4.15."""

    magnitude = Tanh(alpha=1.5, radius=6.0, learnable_radius=False, weighted="tanh_product")

    def formula(self, w_norm, x_norm):
        return 1.5 * np.tanh(x_norm * w_norm / 6)


class TestProductOfTanh(BoundedContract, FormulaContract):
    """Eq. 4.16."""

    magnitude = Tanh(alpha=1.5, radius=6.0, learnable_radius=False, weighted="product_of_tanh")

    def formula(self, w_norm, x_norm):
        return 1.5 * np.tanh(w_norm / 6) * np.tanh(x_norm / 6)


class TestLinearlyWeightedTanh(FormulaContract):
    magnitude = Tanh(radius=6.0, learnable_radius=False, weighted="linear")

    def formula(self, w_norm, x_norm):
        return w_norm * np.tanh(x_norm / 6)


@pytest.mark.parametrize("weighted", ["tanh_product", "product_of_tanh"])
@pytest.mark.parametrize("g", [angular.Cosine(), angular.Linear()])
def test_a_learned_radius_enters_both_weighted_forms(weighted, g):
    layer = Conv2d(
        3, 4, 3, magnitude=Tanh(learnable_radius=True, weighted=weighted), angular=g, bias=False, dtype=torch.float64
    )
    layer.magnitude.radius.log_rho.data = torch.linspace(-1, 1, 4, dtype=torch.float64)
    x = torch.randn(2, 3, 3, 3, dtype=torch.float64)
    flat = Linear(27, 4, bias=False, dtype=torch.float64, angular=g)
    flat.weight.data = layer.weight.flatten(1)
    x_norm, w_norm = x.flatten(1).norm(dim=1, keepdim=True), flat.weight.norm(dim=1)
    rho, mean = layer.magnitude.radius.log_rho.exp(), x_norm.mean()
    if weighted == "tanh_product":
        h = torch.tanh(x_norm * w_norm / (rho * mean))
    else:
        h = torch.tanh(w_norm / rho) * torch.tanh(x_norm / (rho * mean))
    assert torch.allclose(layer(x).flatten(1), h * flat(x.flatten(1)), atol=1e-12)
