import pytest
import torch

from hypersphere.recognition import Calibration, Gallery


def test_a_calibration_comes_back_exactly():
    found = Calibration(0.1 + 0.2, "fpir", 1e-3, 77, 0.1 / 3, (0.01, 0.1 + 0.7), 20)
    assert Calibration.from_text(found.to_text()) == found


def test_warnings_depend_on_the_size():
    far, fpir = Calibration(0.5, "far", 1e-3, 10), Calibration(0.5, "fpir", 0.01, 100)
    assert far.warning(99) is None
    assert "a gallery of 1000 identities accepts about 63% of strangers" in far.warning(1000)
    assert fpir.warning(200) is None
    assert "calibrated for 100 identities, there are 1000 now, and about 10% of strangers" in fpir.warning(1000)
    assert Calibration(0.5, "far", 1.0, 0).expected_fpir(5) == 1.0


@pytest.mark.parametrize("size", [100, 1000])
def test_what_a_pairwise_rate_promises_is_not_what_a_gallery_keeps(size):
    """A pairwise threshold accepts the expected share of strangers. A threshold from strangers keeps its own rate."""
    people, strangers = torch.randn(size, 64), torch.randn(2000, 64)
    pairs = torch.cosine_similarity(torch.randn(200_000, 64), torch.randn(200_000, 64))
    scores = torch.cat([pairs, torch.ones(1)])
    with Gallery(":memory:") as gallery:
        gallery.enrol([str(i) for i in range(size)], people)
        with pytest.warns(UserWarning, match="identities accepts about"):
            gallery.calibrate(far=1e-3, pairs=(scores, torch.arange(len(scores)) == 200_000))
        with pytest.warns(UserWarning, match="identities accepts about"):
            accepted = sum(m.accepted for m in gallery.identify(strangers[:1000])) / 1000
        assert accepted == pytest.approx(gallery.calibrations["far"].expected_fpir(size), abs=0.08)
        gallery.calibrate(fpir=0.02, strangers=strangers[:1000], people=range(1000))
        kept = sum(m.accepted for m in gallery.identify(strangers[1000:])) / 1000
        assert kept < 0.04


@pytest.mark.parametrize(("people", "pictures", "fpir"), [(60, 10, 0.05), (30, 5, 0.1)])
def test_new_strangers_are_accepted_at_most_at_the_promised_rate(people, pictures, fpir):
    """Counting pictures instead of people, 50 pictures of 5 strangers promised 5 % but accepted 10.9 % on average."""
    draws, kept = 60, 0
    with Gallery(":memory:") as gallery:
        gallery.enrol([str(i) for i in range(20)], torch.randn(20, 16))
        for _ in range(draws):
            owner = torch.arange(people).repeat_interleave(pictures)
            given = torch.randn(people, 16)[owner] + 0.3 * torch.randn(people * pictures, 16)
            gallery.calibrate(fpir=fpir, strangers=given, people=owner)
            new = torch.randn(2000, 16) + 0.3 * torch.randn(2000, 16)
            kept += sum(answer.accepted for answer in gallery.identify(new)) <= fpir * 2000
    assert kept >= 0.9 * draws
