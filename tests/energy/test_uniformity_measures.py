import functools
import math

import pytest
import torch

from hypersphere.energy import (
    alignment,
    covering_radius,
    gram_log_determinant,
    kernel_discrepancy,
    maximum_separation,
    polarization,
    uniformity,
    uniformity_measures,
)
from hypersphere.geometry import normalize, uniform


class ObjectiveContract:
    """A measure of directions that is smaller for more uniform directions."""

    def objective(self, weight):
        raise AssertionError("the contract's class must give the objective")

    def test_lengths_and_rotations_do_not_matter(self):
        w = uniform(9, 3, dtype=torch.float64)
        rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
        assert self.objective(7 * w @ rotation).item() == pytest.approx(self.objective(w).item(), abs=2e-3)

    def test_prefers_spread_points(self):
        octahedron = torch.cat([torch.eye(3), -torch.eye(3)])
        bunched = normalize(octahedron + torch.tensor([2.0, 0.0, 0.0]) + 0.01 * torch.randn(6, 3))
        assert self.objective(octahedron) < self.objective(bunched)

    def test_the_gradient_is_the_derivative(self):
        w = uniform(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).requires_grad_()
        (gradient,) = torch.autograd.grad(self.objective(w), w)
        direction = torch.randn(9, 3, dtype=torch.float64)
        with torch.no_grad():
            slope = (self.objective(w + 1e-5 * direction) - self.objective(w - 1e-5 * direction)) / 2e-5
        assert (gradient * direction).sum().item() == pytest.approx(slope.item(), rel=self.accuracy, abs=1e-4)

    accuracy = 1e-4

    def test_duplicates_and_zero_rows_are_finite(self):
        w = torch.randn(6, 3)
        w[1], w[2] = w[0], 0
        w.requires_grad_()
        value = self.objective(w)
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(w.grad).all()


class TestMaximumSeparation(ObjectiveContract):
    objective = staticmethod(maximum_separation)

    def test_is_minus_the_least_squared_distance(self):
        x = uniform(12, 4)
        assert maximum_separation(x).item() == pytest.approx(
            -((torch.cdist(x, x) + 9 * torch.eye(12)).min().item() ** 2), rel=1e-4
        )


class TestPolarization(ObjectiveContract):
    objective = staticmethod(polarization)

    def test_is_the_least_potential_on_a_fine_grid(self):
        x = uniform(5, 2, dtype=torch.float64)
        angles = torch.linspace(0, 2 * math.pi, 20001, dtype=torch.float64)
        grid = torch.stack([angles.cos(), angles.sin()], 1)
        potential = (torch.cdist(grid, x) ** -2).mean(1)
        assert polarization(x).item() == pytest.approx(-potential.min().item(), rel=1e-5)


class TestCoveringRadius(ObjectiveContract):
    objective = staticmethod(functools.partial(covering_radius, probes=16, method="probes"))
    accuracy = 1e-2  # the center of the hole is found to about 10⁻⁴

    def test_is_the_radius_of_the_largest_gap_on_a_circle(self):
        angles = torch.tensor([0.0, 0.5, 1.7, 4.0], dtype=torch.float64)
        x = torch.stack([angles.cos(), angles.sin()], 1)
        assert self.objective(x).item() == pytest.approx(2.3 / 2, abs=1e-3)


class TestGramLogDeterminant(ObjectiveContract):
    objective = staticmethod(gram_log_determinant)

    def test_agrees_with_slogdet(self):
        x = uniform(6, 4, dtype=torch.float64)
        gram = torch.exp(-0.5 * torch.cdist(x, x) ** 2) + 1e-6 * torch.eye(6, dtype=torch.float64)
        assert gram_log_determinant(x, t=0.5).item() == pytest.approx(
            -torch.linalg.slogdet(gram).logabsdet.item() / 6, rel=1e-6
        )

    def test_refuses(self):
        with pytest.raises(ValueError, match="ridge must be"):
            gram_log_determinant(torch.eye(3), ridge=0.0)
        with pytest.raises(ValueError, match="t must be"):
            gram_log_determinant(torch.eye(3), t=-1.0)


class TestUniformity(ObjectiveContract):
    objective = staticmethod(uniformity)

    def test_agrees_with_pdist(self):
        x = uniform(20, 4)
        assert uniformity(x).item() == pytest.approx(
            torch.pdist(x).square().mul(-2).exp().mean().log().item(), rel=1e-5
        )


class TestAlignment:
    @pytest.mark.parametrize("alpha", [1.0, 2.0])
    def test_is_the_mean_power_of_the_distance(self, alpha):
        x, y = torch.randn(2, 8, 5, dtype=torch.float64, requires_grad=True)
        expected = (normalize(x) - normalize(y)).norm(dim=1).pow(alpha).mean()
        assert alignment(3 * x, y, alpha).item() == pytest.approx(expected.item())
        assert torch.autograd.gradcheck(lambda x: alignment(x, y.detach(), alpha), x.detach().requires_grad_())

    def test_equal_features_are_finite(self):
        x = torch.randn(4, 3, requires_grad=True)
        alignment(x, x.detach(), 1.0).backward()
        assert (x.grad == 0).all()

    @pytest.mark.untyped
    def test_refuses(self):
        with pytest.raises(ValueError, match="same shape"):
            alignment(torch.ones(3, 4), torch.ones(4, 4))
        with pytest.raises(ValueError, match="alpha must be"):
            alignment(torch.ones(3, 4), torch.ones(3, 4), 0.0)


def brute_force(w, draws=200_000):
    x = torch.nn.functional.normalize(w.double(), dim=1)
    total = sum((0.5 - math.acos(max(-1, min(1, (a @ b).item()))) / (2 * math.pi)) ** 2 for a in x for b in x)
    u, v = uniform(2 * draws, w.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0)).chunk(2)
    k = 0.5 - torch.arccos((u * v).sum(1)) / (2 * math.pi)
    return total / len(x) ** 2 - k.square().mean().item()


@pytest.mark.parametrize("dim", [2, 3, 10])
def test_is_lemma_14(dim, monkeypatch):
    monkeypatch.setattr(uniformity_measures, "CHUNK_ENTRIES", 40)  # several chunks
    w = torch.randn(12, dim, dtype=torch.float64)
    assert kernel_discrepancy(w).item() == pytest.approx(brute_force(w), abs=5e-4)


def test_is_zero_in_the_mean_but_for_the_diagonal_and_smaller_for_even_points():
    n = 400
    random = kernel_discrepancy(uniform(n, 3, generator=torch.Generator().manual_seed(0)))
    crowded = kernel_discrepancy(torch.randn(n, 3).abs())
    assert random < 0.01 < crowded


def test_gradcheck():
    assert torch.autograd.gradcheck(kernel_discrepancy, torch.randn(5, 3, dtype=torch.float64, requires_grad=True))
