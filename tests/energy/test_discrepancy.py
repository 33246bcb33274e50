import math

import pytest
import torch

from hypersphere.energy import discrepancy, kernel_discrepancy
from hypersphere.geometry import uniform


def brute_force(w, draws=200_000):
    x = torch.nn.functional.normalize(w.double(), dim=1)
    total = sum((0.5 - math.acos(max(-1, min(1, (a @ b).item()))) / (2 * math.pi)) ** 2 for a in x for b in x)
    u, v = uniform(2 * draws, w.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0)).chunk(2)
    k = 0.5 - torch.arccos((u * v).sum(1)) / (2 * math.pi)
    return total / len(x) ** 2 - k.square().mean().item()


@pytest.mark.parametrize("dim", [2, 3, 10])
def test_is_lemma_14(dim, monkeypatch):
    monkeypatch.setattr(discrepancy, "ENTRIES", 40)  # several chunks
    w = torch.randn(12, dim, dtype=torch.float64)
    assert kernel_discrepancy(w).item() == pytest.approx(brute_force(w), abs=5e-4)


def test_is_zero_in_the_mean_but_for_the_diagonal_and_smaller_for_even_points():
    n = 400
    random = kernel_discrepancy(uniform(n, 3, generator=torch.Generator().manual_seed(0)))
    crowded = kernel_discrepancy(torch.randn(n, 3).abs())
    assert random < 0.01 < crowded


def test_gradcheck():
    assert torch.autograd.gradcheck(kernel_discrepancy, torch.randn(5, 3, dtype=torch.float64, requires_grad=True))
