import math

import pytest
import torch

from hypersphere.recognition import Calibration, Gallery
from hypersphere.recognition.calibrating import threshold_at_fpir


@pytest.mark.parametrize("fpir", [0.01, 0.05, 0.5, 0.99])
def test_the_lowest_threshold_that_keeps_the_rate(fpir):
    best = torch.rand(200, dtype=torch.double)
    threshold = threshold_at_fpir(best, fpir)
    assert (best >= threshold).double().mean() <= fpir
    assert (best >= math.nextafter(threshold, -1)).double().mean() > fpir


def test_ties_never_exceed_the_rate():
    best = torch.tensor([0.9, 0.5, 0.5, 0.5], dtype=torch.double)
    assert (best >= threshold_at_fpir(best, 0.5)).sum() == 1


@pytest.mark.parametrize("fpir", [0, 1, -0.1, math.nan])
def test_refuses_rates(fpir):
    with pytest.raises(ValueError, match="fpir must be between 0 and 1"):
        threshold_at_fpir(torch.rand(10, dtype=torch.double), fpir)


def test_refuses_what_was_not_measured():
    with pytest.raises(ValueError, match=r"fpir=0.01 needs at least 100 strangers to be resolved, got 99"):
        threshold_at_fpir(torch.rand(99, dtype=torch.double), 0.01)


def test_a_calibration_comes_back_exactly():
    found = Calibration(0.1 + 0.2, "fpir", 1e-3, 77)
    assert Calibration.from_text(found.to_text()) == found
    assert Calibration.from_text(None) is None


def test_warnings_depend_on_the_size():
    far, fpir = Calibration(0.5, "far", 1e-3, 10), Calibration(0.5, "fpir", 0.01, 100)
    assert far.warning(99) is None
    assert "about 63% of strangers into a gallery of 1000 identities" in far.warning(1000)
    assert fpir.warning(200) is None
    assert "calibrated for 100 identities, there are 1000 now, and about 10% of strangers" in fpir.warning(1000)
    assert Calibration(0.5, "far", 1.0, 0).expected_fpir(5) == 1.0


@pytest.mark.parametrize("size", [100, 1000])
def test_what_a_pairwise_rate_promises_is_not_what_a_gallery_keeps(size):
    """With independent scores the expected share of accepted strangers is met, and calibrating by strangers keeps its own."""
    people, strangers = torch.randn(size, 64), torch.randn(2000, 64)
    pairs = torch.cosine_similarity(torch.randn(200_000, 64), torch.randn(200_000, 64))
    scores = torch.cat([pairs, torch.ones(1)])
    with Gallery(":memory:") as gallery:
        gallery.enrol([str(i) for i in range(size)], people)
        with pytest.warns(UserWarning, match="of strangers into a gallery"):
            gallery.calibrate(scores, torch.arange(len(scores)) == 200_000, far=1e-3)
        with pytest.warns(UserWarning, match="of strangers into a gallery"):
            accepted = sum(m[0].accepted for m in gallery.identify(strangers[:1000])) / 1000
        assert accepted == pytest.approx(gallery.calibration.expected_fpir(size), abs=0.08)
        gallery.calibrate_fpir(strangers[:1000], fpir=0.02)
        kept = sum(m[0].accepted for m in gallery.identify(strangers[1000:])) / 1000
        assert kept < 0.04
