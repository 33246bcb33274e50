import math

import pytest
import torch

from hypersphere.energy.tammes import _soft_maximum, spread
from hypersphere.geometry import uniform


def angle_of(points):
    cos = points @ points.T - 2 * torch.eye(len(points), dtype=points.dtype)
    return math.degrees(math.acos(cos.max().item()))


@pytest.mark.untyped  # the checks take longer than the arithmetic
@pytest.mark.parametrize(("n", "degrees"), [(5, 90.0), (8, 74.8584922)])
def test_the_contacts_of_the_best_are_exact(n, degrees):
    start = uniform(8 * n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).view(8, n, 3)
    assert angle_of(spread(start, False, 1e-9, 60)) == pytest.approx(degrees, abs=1e-6)


@pytest.mark.untyped
def test_lines_in_half_space():
    """Six lines through opposite vertices of the icosahedron."""
    start = uniform(48, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).view(8, 6, 3)
    points = spread(start, True, 1e-9, 60)
    cos = (points @ points.T).abs() - torch.eye(6, dtype=torch.float64)
    assert cos.max().item() == pytest.approx(1 / math.sqrt(5), abs=1e-9)


@pytest.mark.parametrize("half_space", [False, True])
def test_the_gradient_is_the_derivative(half_space):
    x = torch.randn(2, 12, dtype=torch.float64)
    _, gradient = _soft_maximum(x, 3, half_space, 8.0)
    for k in range(12):
        step = torch.zeros_like(x)
        step[:, k] = 1e-6
        up, down = (_soft_maximum(x + sign * step, 3, half_space, 8.0)[0] for sign in (1, -1))
        assert torch.allclose(gradient[:, k], (up - down) / 2e-6, atol=1e-7)
