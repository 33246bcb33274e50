"""Theorems of chapter 3 about the operator, checked numerically."""

import itertools

import pytest
import torch

from hypersphere import angular
from hypersphere.operators import Linear, apply_operator, magnitudes

N, M, K = 6, 5, 3


def hessian(magnitude, u, v, target):
    """Return the Hessian of ½‖F − f(U, V)‖² in all entries of U and V, where f is the operator between rows."""

    def loss(flat):
        u, v = flat[: N * K].reshape(N, K), flat[N * K :].reshape(M, K)
        return 0.5 * (target - apply_operator(v, u, None, magnitude, angular.Cosine()).T).square().sum()

    return torch.autograd.functional.hessian(loss, torch.cat([u.flatten(), v.flatten()]))


def spectrum(matrix):
    return torch.linalg.eigvalsh((matrix + matrix.T) / 2)


def condition(matrix):
    """Return λ_max divided by the smallest nonzero eigenvalue."""
    values = spectrum(matrix)
    return values[-1] / values[values > 1e-9 * values[-1]][0]


@pytest.fixture
def factors():
    generator = torch.Generator().manual_seed(3)
    u, v = (torch.randn(n, K, dtype=torch.float64, generator=generator) for n in (N, M))
    return tuple(t / t.norm(dim=1, keepdim=True) for t in (u, v))


def test_lemma_1_the_inner_product_is_conditioned_worse_by_the_square(factors):
    u, v = factors
    kappas = [condition(hessian(magnitudes.InnerProduct(), c * u, v / c, u @ v.T)) for c in (1, 2, 4, 8)]
    growth = torch.tensor([(b / a).item() for a, b in itertools.pairwise(kappas)])
    assert (growth >= 4).all()  # doubling c multiplies the condition number by at least 2²


def test_the_hessian_of_the_inner_product_has_the_blocks_of_b_1(factors):
    u, v = factors
    full = hessian(magnitudes.InnerProduct(), u, v, u @ v.T)
    assert torch.allclose(full[: N * K, : N * K], torch.kron(torch.eye(N, dtype=torch.float64), v.T @ v), atol=1e-12)
    assert torch.allclose(full[N * K :, N * K :], torch.kron(torch.eye(M, dtype=torch.float64), u.T @ u), atol=1e-12)


@pytest.mark.parametrize("c", [2.0, 8.0, 100.0])
def test_lemma_2_the_cosine_operator_does_not_change(factors, c):
    """The lemma normalizes U and V after each step (B.4.2), so the Hessian is taken at the normalized pair."""
    u, v = factors
    unit = lambda t: t / t.norm(dim=1, keepdim=True)
    first = hessian(magnitudes.Sphere(), u, v, u @ v.T)
    second = hessian(magnitudes.Sphere(), unit(c * u), unit(v / c), u @ v.T)
    assert torch.allclose(spectrum(first), spectrum(second), atol=1e-10)
    assert torch.allclose(condition(first), condition(second), rtol=1e-6)


@pytest.mark.parametrize("c", [2.0, 8.0])
def test_without_normalizing_the_objective_is_the_same_and_the_hessian_scales_by_blocks(factors, c):
    u, v = factors
    first = hessian(magnitudes.Sphere(), u, v, u @ v.T)
    second = hessian(magnitudes.Sphere(), c * u, v / c, u @ v.T)
    s = torch.cat([torch.full((N * K,), 1 / c), torch.full((M * K,), c)]).double()
    assert torch.allclose(second, s[:, None] * first * s, atol=1e-9)


def test_the_gradient_of_the_operator_is_perpendicular_to_its_weight():
    layer, x = Linear(6, 4, bias=False, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
    layer(x).square().sum().backward()
    assert ((layer.weight * layer.weight.grad).sum(1).abs() < 1e-12).all()


def test_the_sigmoid_becomes_linear_as_k_grows():
    layer, x = Linear(6, 4, angular=angular.Linear()), torch.randn(20, 6)
    expected, gaps = layer(x), []
    for k in (0.5, 5.0, 50.0):
        other = Linear(6, 4, angular=angular.Sigmoid(k))
        other.load_state_dict(layer.state_dict())
        gaps.append((other(x) - expected).abs().max().item())
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-3


def test_relu_after_the_plain_operator_is_an_angular_function():
    """4.5: max(0, ‖w‖‖x‖cos θ) is the decoupled operator with g = max(0, cos θ)."""
    layer, x = Linear(6, 4, bias=False, magnitude=magnitudes.InnerProduct(), angular=torch.relu), torch.randn(5, 6)
    assert torch.allclose(layer(x), torch.relu(x @ layer.weight.T), atol=1e-5)
