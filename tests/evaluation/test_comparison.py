import pytest
import torch

from hypersphere.evaluation import compare_embedders, paired_difference
from tests.evaluation.contracts import ReportContract


class TestDifferenceReport(ReportContract):
    @pytest.fixture
    def report(self):
        same = torch.arange(200) % 2 == 0
        return paired_difference(torch.randn(200) + 2 * same, torch.randn(200) + same, same, resamples=50)


def test_the_same_embedder_has_a_difference_of_zero():
    same = torch.arange(300) % 3 == 0
    scores = torch.randn(300) + same
    report = paired_difference(scores, scores, same, resamples=50)
    assert (report.difference, report.difference.low, report.difference.high, report.wins) == (0, 0, 0, 0.5)


def test_the_interval_of_the_difference_is_narrower_than_those_of_the_measures():
    same = torch.arange(1000) % 2 == 0
    first = torch.randn(1000) + 1.5 * same
    report = paired_difference(first, first + 0.05 * torch.randn(1000), same, measure="auc", resamples=200)
    width = lambda m: m.high - m.low
    assert width(report.difference) < 0.2 * width(report.first)


@pytest.mark.untyped  # many calls, whose types other tests check
def test_intervals_cover_the_truth():
    # Two independent scores of the same quality: 95 % intervals should contain a difference of 0.
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
    with pytest.raises(ValueError, match="give pairs of more identities"):
        paired_difference(scores, scores, same, identities=torch.tensor([[0, 0], [1, 2]]).repeat(10, 1), resamples=50)
    with pytest.raises(ValueError, match="scores and same must both have shape"):
        paired_difference(scores, scores[:-1], same)
    with pytest.raises(ValueError, match="features of the same images, got 4 and 3"):
        compare_embedders(torch.rand(4, 2), torch.rand(3, 2), torch.arange(4) // 2)
