import numpy as np
import pytest
import scipy.linalg
import torch

from hypersphere.evaluation import frechet_distance


def reference(a, b):
    a, b = a.double().numpy(), b.double().numpy()
    one, two = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    cross = scipy.linalg.sqrtm(one @ two)
    return float(((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(one + two - 2 * cross.real))


def test_agrees_with_the_square_root_of_the_product():
    a, b = torch.randn(50, 6), 0.5 * torch.randn(40, 6) @ torch.randn(6, 6) + 1
    assert frechet_distance(a, b) == pytest.approx(reference(a, b), rel=1e-6)
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b, a), rel=1e-9)


def test_equal_sets_and_shifts():
    a = torch.randn(100, 4)
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(a, a + 3.0) == pytest.approx(36, rel=1e-5)


def test_fewer_vectors_than_dimensions():
    assert np.isfinite(frechet_distance(torch.randn(3, 10), torch.randn(4, 10)))


def test_refuses_one_vector():
    with pytest.raises(ValueError, match="both sets need at least two vectors, got 1 and 5"):
        frechet_distance(torch.randn(1, 2), torch.randn(5, 2))
