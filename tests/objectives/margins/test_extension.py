import math

import pytest
import torch

from hypersphere import angular
from hypersphere.objectives.margins.extension import continue_past_pi, continue_past_pi_plainly

COSINE = angular.Cosine()
PAIRS = [(1.0, 0.5), (2, 0), (4, 0), (1.5, 0), (3, 0.2), (1.7, 0.3)]


@pytest.mark.parametrize(("m1", "m2"), PAIRS)
def test_by_hand_agrees_with_plain_operations_in_value_and_both_derivatives(m1, m2):
    cos = torch.cos(torch.linspace(0.02, 3.12, 41, dtype=torch.float64)).requires_grad_()
    found = []
    for function in (lambda c: continue_past_pi(c, m1, m2), lambda c: continue_past_pi_plainly(c, m1, m2, COSINE)):
        value = function(cos)
        (first,) = torch.autograd.grad(value.sum(), cos, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), cos)
        once = torch.autograd.grad(function(cos).sum(), cos)[0]
        found.append((value, first, once, second))
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("m1", [1.0, torch.tensor(1.5, dtype=torch.float64)], ids=str)
def test_a_margin_per_sample_has_its_gradient_and_stops_at_zero(m1):
    cos = torch.cos(torch.linspace(0.1, 3.0, 9, dtype=torch.float64)).requires_grad_()
    m2 = torch.linspace(-0.5, 0.9, 9, dtype=torch.float64).requires_grad_()
    results = [continue_past_pi(cos, m1, m2), continue_past_pi_plainly(cos, m1, m2, COSINE)]
    assert torch.allclose(*results)
    for a, b in zip(*(torch.autograd.grad(r.sum(), (cos, m2)) for r in results), strict=True):
        assert torch.allclose(a, b)
    assert torch.autograd.gradcheck(lambda c, m: continue_past_pi(c, m1, m), (cos, m2))
    assert torch.autograd.gradgradcheck(lambda c, m: continue_past_pi(c, m1, m), (cos, m2))
    assert continue_past_pi(torch.ones(1), 1.0, torch.tensor([-0.3])).item() == 1
    assert torch.autograd.grad(continue_past_pi(cos, m1, m2.detach()).sum(), cos)[0].shape == (9,)


def test_the_slope_at_the_poles():
    for m in (2, 3, 4):
        cos = torch.tensor([1.0, -1.0, 1.0000001, -1.0000001], requires_grad=True)
        assert torch.autograd.grad(continue_past_pi(cos, m, 0).sum(), cos)[0].tolist() == [m * m] * 4
    cos = torch.tensor([1.0, -1.0], requires_grad=True)
    slope = torch.autograd.grad(continue_past_pi(cos, 1.5, 0).sum(), cos)[0]
    assert slope[0] == 2.25
    assert 0 < slope[1] <= 1.5 / math.sqrt(torch.finfo(torch.float32).eps)


def test_half_precision_and_transforms():
    cos = torch.tensor([0.9, -0.3], dtype=torch.float16)
    assert continue_past_pi(cos, 2, 0).dtype == torch.float16
    many = torch.func.vmap(lambda c: continue_past_pi(c, 1.0, 0.5))(cos.float()[:, None])
    assert torch.allclose(many[:, 0], continue_past_pi(cos.float(), 1.0, 0.5), atol=1e-6)
