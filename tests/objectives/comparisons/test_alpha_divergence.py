import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from hypersphere.objectives.comparisons import AlphaDivergence, CrossEntropy
from hypersphere.objectives.comparisons.alpha_divergence import margin_to_prior

from .contracts import ComparisonContract


def fenchel_young(target, others, alpha, prior):
    """max_p p·z − D(p‖q) + D(e_y‖q) − z_y from the primal, with τ by bisection."""
    z, q = np.append(others, target), np.append(np.ones(len(others)), prior)

    def probabilities(tau):
        return q * np.maximum(1 + (alpha - 1) * (z - tau), 0) ** (1 / (alpha - 1))

    f = lambda u: (u**alpha - alpha * u + alpha - 1) / (alpha * (alpha - 1))
    low, high = z.min() - 1e3 / prior, z.max() + 1 / (alpha - 1)
    p = probabilities(brentq(lambda tau: probabilities(tau).sum() - 1, low, high, xtol=1e-15, rtol=1e-15))
    target_only = np.append(np.zeros(len(others)), 1.0)
    return p @ z - (q * f(p / q)).sum() + (q * f(target_only / q)).sum() - target


class TestSparsemax(ComparisonContract):
    comparison = AlphaDivergence(2.0)

    def formula(self, target, others, num_classes):
        return fenchel_young(target, others, self.comparison.alpha, self.comparison.prior)


class TestEntmaxWithAMargin(TestSparsemax):
    comparison = AlphaDivergence(1.5, 0.1)


class TestNearlySoftmax(TestSparsemax):
    comparison = AlphaDivergence(1.1, 0.5)


def test_approaches_the_cross_entropy_with_a_margin():
    t, z = ComparisonContract.batch()
    softmax, entmax = CrossEntropy(), AlphaDivergence(1 + 1e-5, math.exp(-0.7))
    expected = softmax.loss(t - 0.7, softmax.of_all(z), 10)
    assert torch.allclose(entmax.loss(t, entmax.of_all(z), 10), expected, atol=1e-3)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
def test_derivatives(alpha):
    comparison = AlphaDivergence(alpha, 0.3)
    t, z = ComparisonContract.batch()
    # Avoid the border of the support, where second derivatives jump for α = 2.
    inputs = (t[:3].requires_grad_(), z[:3].requires_grad_())
    loss = lambda t, z: comparison.loss(t, z.sort(1, descending=True).values.unbind(1), 10)
    assert torch.autograd.gradcheck(loss, inputs)
    if alpha < 2:
        assert torch.autograd.gradgradcheck(loss, inputs, atol=1e-4)


def test_the_loss_is_0_beyond_the_margin_and_not_before():
    comparison = AlphaDivergence(1.5, margin_to_prior(3.0, 1.5))
    lead = torch.tensor([4.9, 5.0, 9.0], dtype=torch.float64)  # a margin of 3, and 1/(α − 1) = 2
    loss = comparison.loss(lead, (torch.zeros(3, dtype=torch.float64),), 2)
    assert loss[0] > 0
    assert loss[1:].abs().max() < 1e-14


def test_only_candidates_are_kept():
    z = torch.tensor([[5.0, 4.5, 3.0, -9.0]])
    assert len(AlphaDivergence(2.0).of_all(z)) == 2
    assert len(AlphaDivergence(1.5).of_all(z)) == 2
    assert len(AlphaDivergence(1.4).of_all(z)) == 3


def test_probabilities_are_sparse_and_sum_to_1():
    z = 3 * torch.randn(20, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = AlphaDivergence(1.5).probabilities(z)
    assert torch.allclose(p.sum(1), torch.ones(20, dtype=torch.float64), atol=1e-13)
    assert (p == 0).double().mean() > 0.5


@pytest.mark.parametrize(
    ("name", "value"), [("alpha", 1.0), ("alpha", 2.5), ("alpha", math.nan), ("prior", 0.0), ("prior", 1.1)]
)
def test_refuses(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a number"):
        AlphaDivergence(**{name: value})
    with pytest.raises(ValueError, match="margin must be a number"):
        margin_to_prior(-1.0, 1.5)
