import math

import pytest
import torch

from hypersphere.geometry import uniform


@pytest.mark.parametrize("dim", [2, 3, 10])
def test_points_are_unit_and_uniform(dim):
    n = 20_000
    x = uniform(n, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.allclose(x.norm(dim=-1), torch.ones(n, dtype=torch.float64))
    # Rayleigh: n·d·‖mean‖² is χ² with d degrees of freedom; Bingham: the covariance is I/d.
    assert n * dim * x.mean(0).square().sum() <= dim + 4 * math.sqrt(2 * dim)
    assert (x.T @ x / n - torch.eye(dim, dtype=torch.float64) / dim).abs().max() <= 5 / math.sqrt(n)


def test_the_generator_decides():
    a, b = (uniform(4, 3, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(a, b)


def test_refuses():
    with pytest.raises(ValueError, match="dim ≥ 1"):
        uniform(3, 0)
