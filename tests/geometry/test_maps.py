import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.geometry import angle, exp_map, log_map, norm, normalize, slerp, tangent, uniform


@given(st.integers(2, 20), st.integers(0, 2**31))
def test_exp_undoes_log(dim, seed):
    x, y = uniform(20, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).chunk(2)
    v = log_map(x, y)
    assert torch.allclose(exp_map(x, v), y, atol=1e-10)
    assert torch.allclose(norm(v), angle(x, y), atol=1e-10)
    assert (v * x).sum(-1).abs().max() <= 1e-10


def test_log_undoes_exp():
    x = uniform(50, 6, dtype=torch.float64)
    v = tangent(x, torch.randn(50, 6, dtype=torch.float64))
    v = v / norm(v, keepdim=True) * torch.rand(50, 1, dtype=torch.float64) * 3
    assert torch.allclose(log_map(x, exp_map(x, v)), v, atol=1e-8)


def test_tangent_is_orthogonal_and_idempotent():
    x, v = torch.randn(2, 9, 5, dtype=torch.float64)
    t = tangent(x, v)
    assert (t * x).sum(-1).abs().max() <= 1e-12
    assert torch.allclose(tangent(x, t), t)


def test_slerp_agrees_with_the_sine_formula():
    x, y = uniform(20, 4, dtype=torch.float64).chunk(2)
    t = torch.rand(10, dtype=torch.float64)
    omega = torch.acos((x * y).sum(-1, keepdim=True))
    reference = (torch.sin((1 - t)[:, None] * omega) * x + torch.sin(t[:, None] * omega) * y) / torch.sin(omega)
    assert torch.allclose(slerp(x, y, t), reference, atol=1e-10)


def test_slerp_ends_and_speed():
    x, y = torch.randn(2, 7, 3, dtype=torch.float64)
    assert torch.allclose(slerp(x, y, 0.0), normalize(x))
    assert torch.allclose(slerp(x, y, 1.0), normalize(y))
    assert torch.allclose(angle(x, slerp(x, y, 0.25)), 0.25 * angle(x, y))


def test_antipodes_are_joined_by_some_great_circle():
    x = torch.tensor([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]], dtype=torch.float64, requires_grad=True)
    middle = slerp(x, -x.detach(), 0.5)
    assert torch.allclose(angle(x, middle), torch.full((2,), math.pi / 2, dtype=torch.float64), atol=1e-7)
    middle.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_the_same_point():
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    assert (log_map(x, x.detach()) == 0).all()
    slerp(x, x.detach(), 0.5).sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("function", [tangent, exp_map, log_map, lambda x, y: slerp(x, y, 0.3)])
def test_gradcheck(function):
    x, y = torch.randn(2, 4, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(function, (x.requires_grad_(), y.requires_grad_()))
