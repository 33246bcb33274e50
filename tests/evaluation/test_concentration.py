import math

import numpy as np
import pytest
import torch
from scipy.special import ive

from hypersphere.evaluation import vmf_confidence
from hypersphere.evaluation.concentration import log_normalizer, mean_length

KAPPA = torch.tensor([0.1, 1.0, 10.0, 100.0, 600.0], dtype=torch.float64)


@pytest.mark.parametrize("dim", [2, 3, 16, 128])
def test_normalizer_and_mean_length_agree_with_scipy(dim):
    kappa, order = KAPPA.numpy(), dim / 2 - 1
    bessel = np.log(ive(order, kappa)) + kappa
    expected = order * np.log(kappa) - dim / 2 * math.log(2 * math.pi) - bessel
    np.testing.assert_allclose(log_normalizer(KAPPA, dim), expected, atol=5e-12 * dim, rtol=1e-12)
    np.testing.assert_allclose(mean_length(KAPPA, dim), ive(order + 1, kappa) / ive(order, kappa), rtol=1e-12)


def test_three_dimensions_have_a_closed_form():
    expected = torch.log(KAPPA / (4 * math.pi)) - (KAPPA + torch.log1p(-torch.exp(-2 * KAPPA)) - math.log(2))
    torch.testing.assert_close(log_normalizer(KAPPA, 3), expected, atol=1e-11, rtol=0)
    torch.testing.assert_close(mean_length(KAPPA, 3), 1 / torch.tanh(KAPPA) - 1 / KAPPA, atol=1e-12, rtol=0)


@pytest.mark.parametrize("dim", [2, 3, 64, 512, 4096])
def test_is_finite_for_tiny_and_huge_concentrations(dim):
    kappa = torch.tensor([0.0, 1e-20, 1e20], dtype=torch.float64)
    area = math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)
    assert log_normalizer(kappa, dim).isfinite().all()
    assert float(log_normalizer(kappa, dim)[0]) == pytest.approx(-area, rel=1e-12, abs=1e-10)
    lengths = mean_length(kappa, dim)
    assert lengths[0] == 0
    assert float(lengths[2]) == pytest.approx(1)


def test_confidence_rises_with_the_length_and_with_the_scale():
    features = torch.randn(5, 8) * torch.tensor([0.0, 0.5, 1.0, 5.0, 50.0])[:, None]
    confidence = vmf_confidence(features)
    assert confidence[0] == 0
    order = features.norm(dim=1).argsort()
    assert (confidence[order].diff() > 0).all()
    torch.testing.assert_close(vmf_confidence(features, 3.0), vmf_confidence(3 * features))


def test_refuses():
    with pytest.raises(ValueError, match="scale must be a number > 0"):
        vmf_confidence(torch.eye(2), 0.0)
    with pytest.raises(ValueError, match="dim must be an integer ≥ 2"):
        log_normalizer(KAPPA, 1)
