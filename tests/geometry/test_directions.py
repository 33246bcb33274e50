import pytest
import torch

from hypersphere.geometry import normalize
from hypersphere.geometry.directions import directions, gram_cosines, through_direction


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_is_normalize_and_its_derivative(scale):
    x = (scale * torch.randn(4, 7, dtype=torch.float64)).requires_grad_()
    g = torch.randn(4, 7, dtype=torch.float64)
    unit, length = directions(x)
    assert torch.allclose(unit, normalize(x), rtol=1e-14)
    assert torch.allclose(length.squeeze(1), x.detach().norm(dim=1), rtol=1e-14)
    (exact,) = torch.autograd.grad((normalize(x) * g).sum(), x)
    if scale >= 1:  # below 1e-20 the derivative is bounded
        assert torch.allclose(through_direction(g.clone(), unit, length), exact, rtol=1e-10)


@pytest.mark.parametrize("size", [1e-30, 1e-13, 1.0, 1e18, 1e30])
def test_directions_of_any_length_in_single_precision(size):
    x = torch.randn(2, 3, 7)
    unit, length = directions(x * size)
    assert torch.allclose(unit, torch.nn.functional.normalize(x, dim=2), atol=1e-6)
    assert torch.allclose(length, x.norm(dim=2, keepdim=True) * size, rtol=1e-5)


def test_a_zero_row():
    unit, length = directions(torch.zeros(1, 3))
    assert not unit.any()
    assert not through_direction(torch.ones(1, 3), unit, length).any()


def test_cosines_of_all_pairs():
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    cos, inverse = gram_cosines(x)
    assert torch.allclose(cos, normalize(x) @ normalize(x).mT)
    assert torch.allclose(inverse, 1 / x.norm(dim=2))
