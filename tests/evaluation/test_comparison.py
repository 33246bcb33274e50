import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.data.streams import RESAMPLE, Stream
from hypersphere.evaluation import compare_embedders, paired_difference, roc_curve
from hypersphere.evaluation.comparison import _Sorted, _weights
from tests.evaluation.contracts import ReportContract
from tests.evaluation.test_roc import pairs


class TestDifferenceReport(ReportContract):
    @pytest.fixture
    def report(self):
        same = torch.arange(200) % 2 == 0
        return paired_difference(torch.randn(200) + 2 * same, torch.randn(200) + same, same, resamples=50)


@given(pairs(), st.randoms(use_true_random=False))
def test_a_weight_is_so_many_copies(case, random):
    scores, same = case
    times = torch.tensor([random.randint(0, 3) for _ in range(len(scores))])
    copies, kinds = scores.repeat_interleave(times), same.repeat_interleave(times)
    side = _Sorted(scores.double() + 0.0, same)
    if not kinds.any() or kinds.all():
        assert np.isnan(side.measure(times.double(), "eer", 0.1))
        return
    roc = roc_curve(copies, kinds)
    assert side.measure(times.double(), "eer", 0.1) == pytest.approx(float(roc.eer), abs=1e-12)
    assert side.measure(times.double(), "auc", 0.1) == pytest.approx(float(roc.auc), abs=1e-12)
    allowed = [t for f, t in zip(roc.far.tolist(), roc.tar.tolist(), strict=True) if f <= 0.3 + 1e-12]
    assert side.measure(times.double(), "tar", 0.3) == pytest.approx(max(allowed), abs=1e-12)


def test_identities_are_drawn_with_their_pairs():
    identities = torch.tensor([[5, 5], [5, 9], [9, 9], [7, 9]])
    same = identities[:, 0] == identities[:, 1]
    drawn = Stream(3, RESAMPLE, 4).integers(3, 3).tolist()  # of 5, 7, 9
    times = {name: drawn.count(i) for i, name in enumerate((5, 7, 9))}
    expected = [times[5], times[5] * times[9], times[9], times[7] * times[9]]
    assert _weights(same, identities, 3)(4).tolist() == expected


def test_the_same_embedder_differs_by_nothing():
    same = torch.arange(300) % 3 == 0
    scores = torch.randn(300) + same
    report = paired_difference(scores, scores, same, resamples=50)
    assert (report.difference, report.difference.low, report.difference.high, report.wins) == (0, 0, 0, 0.5)


def test_pairing_makes_the_interval_narrower_than_that_of_each():
    same = torch.arange(1000) % 2 == 0
    first = torch.randn(1000) + 1.5 * same
    report = paired_difference(first, first + 0.05 * torch.randn(1000), same, measure="auc", resamples=200)
    width = lambda m: m.high - m.low
    assert width(report.difference) < 0.2 * width(report.first)


def test_intervals_cover_the_truth():
    # Two independent scores of equal worth: the difference is 0, and 95 % intervals should say so.
    same, hits = torch.arange(400) % 2 == 0, 0
    for seed in range(60):
        scores = [torch.randn(400) + same for _ in range(2)]
        gap = paired_difference(*scores, same, measure="auc", resamples=100, seed=seed).difference
        hits += gap.low <= 0 <= gap.high
    assert hits >= 51  # 57 expected, deviation 1.7


def test_embedders_are_compared_on_one_set_of_pairs():
    labels = torch.arange(30).repeat(6)
    good = torch.eye(30)[labels] + 0.3 * torch.randn(180, 30)
    bad = good + 0.5 * torch.randn(180, 30)
    report = compare_embedders(good, bad, labels, resamples=100)
    assert report.difference.high < 0
    assert report.wins > 0.99
    assert report.measure == "EER"
    again = compare_embedders(bad, good, labels, resamples=100)
    assert again.difference == pytest.approx(-report.difference)
    assert again.difference.low == pytest.approx(-report.difference.high)
    tar = compare_embedders(good, bad[:, :10], labels, measure="tar", far=1e-2, resamples=50)
    assert tar.measure == "TAR@FAR=1e-2"
    assert tar.difference.low > 0


@pytest.mark.untyped
def test_refuses():
    same = torch.arange(20) % 2 == 0
    scores = torch.rand(20)
    with pytest.raises(ValueError, match="measure must be 'eer', 'auc' or 'tar', got 'f1'"):
        paired_difference(scores, scores, same, measure="f1")
    with pytest.raises(ValueError, match="far must be in"):
        paired_difference(scores, scores, same, measure="tar", far=0.01)
    with pytest.raises(ValueError, match="resamples must be an integer ≥ 2"):
        paired_difference(scores, scores, same, resamples=1)
    with pytest.raises(ValueError, match=r"identities must be integers of shape \(20, 2\)"):
        paired_difference(scores, scores, same, identities=torch.zeros(20, 1).long())
    with pytest.raises(ValueError, match="too few of them"):
        paired_difference(scores, scores, same, identities=torch.tensor([[0, 0], [1, 2]]).repeat(10, 1), resamples=50)
    with pytest.raises(ValueError, match="scores and same must both have shape"):
        paired_difference(scores, scores[:-1], same)
    with pytest.raises(ValueError, match="features of the same images, got 4 and 3"):
        compare_embedders(torch.rand(4, 2), torch.rand(3, 2), torch.arange(4) // 2)
