import pytest
import scipy.stats
import torch

from hypersphere.evaluation import energy_distance


def test_agrees_with_scipy_in_one_dimension_and_a_loop_in_several():
    source = torch.Generator().manual_seed(0)
    a, b = torch.randn(30, 1, generator=source), torch.randn(20, 1, generator=source) + 1
    expected = scipy.stats.energy_distance(a[:, 0].numpy(), b[:, 0].numpy()) ** 2
    assert energy_distance(a, b) == pytest.approx(expected, rel=1e-6)
    a, b = torch.randn(9, 4, generator=source), torch.randn(7, 4, generator=source)
    mean = lambda x, y: sum((p - q).double().norm().item() for p in x for q in y) / (len(x) * len(y))
    assert energy_distance(a, b) == pytest.approx(2 * mean(a, b) - mean(a, a) - mean(b, b), rel=1e-6)


def test_zero_for_the_same_sample_and_larger_for_a_larger_shift():
    a, b = torch.randn(50, 3), torch.randn(50, 3)
    assert energy_distance(a, a) == 0
    assert energy_distance(a, b) < energy_distance(a, b + 0.5) < energy_distance(a, b + 1)


def test_refuses():
    with pytest.raises(ValueError, match=r"vectors of the same dimension, got shapes \(0, 2\) and \(3, 2\)"):
        energy_distance(torch.randn(0, 2), torch.randn(3, 2))
