import itertools
import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import StreamedRoc, roc_curve


@st.composite
def pairs(draw, least=2, most=60):
    """Few distinct scores, so that ties are common within and between same and different pairs."""
    n = draw(st.integers(least, most))
    scores = draw(
        st.lists(st.sampled_from([-1.0, -0.5, -0.0, 0.0, 0.1, 0.25, 1 / 3, 0.9, 1.0]), min_size=n, max_size=n)
    )
    same = draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(lambda s: any(s) and not all(s)))
    return torch.tensor(scores), torch.tensor(same)


def brute_eer(scores, same):
    """Follow the polygon through all (FAR, FRR) points until FAR = FRR."""
    thresholds = [math.inf, *sorted({s + 0.0 for s in scores.tolist()}, reverse=True)]
    points = [
        ((scores[~same] >= t).double().mean().item(), (scores[same] < t).double().mean().item()) for t in thresholds
    ]
    for (far0, frr0), (far1, frr1) in itertools.pairwise(points):
        if far1 >= frr1:
            share = (frr0 - far0) / ((frr0 - far0) + (far1 - frr1))
            return far0 + share * (far1 - far0)
    raise AssertionError("the curve ends at FAR 1, FRR 0")


@given(pairs())
def test_the_curve_agrees_with_scikit_learn(case):
    scores, same = case
    roc = roc_curve(scores, same)
    far, tar, thresholds = sklearn.metrics.roc_curve(same.numpy(), scores.numpy() + 0.0, drop_intermediate=False)
    for ours, theirs in zip(roc, (far, tar, thresholds), strict=True):
        np.testing.assert_allclose(ours, theirs)


@given(pairs())
def test_auc_counts_ties_half(case):
    scores, same = case
    diff = scores[same][:, None] - scores[~same]
    expected = ((diff > 0).double() + 0.5 * (diff == 0)).mean().item()
    assert roc_curve(scores, same).auc == pytest.approx(expected, abs=1e-15)
    assert roc_curve(scores, same).auc == pytest.approx(
        sklearn.metrics.roc_auc_score(same.numpy(), scores.numpy()), abs=1e-12
    )


@given(pairs())
def test_both_error_rates_are_equal_at_the_eer(case):
    scores, same = case
    assert roc_curve(scores, same).eer == pytest.approx(brute_eer(scores, same), abs=1e-12)


@pytest.mark.parametrize("far", [0.0, -0.1, 1.5, math.nan])
def test_refuses_a_rate(far):
    with pytest.raises(ValueError, match=r"far must be in \(0, 1\]"):
        roc_curve(torch.tensor([0.1, 0.2]), torch.tensor([True, False])).at_far(far)


def test_perfect_reversed_and_constant_scores():
    same = torch.tensor([True, True, False, False])
    for scores, auc, eer in (([2.0, 3, 0, 1], 1, 0), ([0.0, 1, 2, 3], 0, 1), ([5.0, 5, 5, 5], 0.5, 0.5)):
        roc = roc_curve(torch.tensor(scores), same)
        assert (roc.auc, roc.eer) == (auc, eer)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_refuses_scores_that_are_not_finite(value):
    with pytest.raises(ValueError, match="scores must be finite, got 1 that are not among 3"):
        roc_curve(torch.tensor([0.1, value, 0.3]), torch.tensor([True, False, True]))


@pytest.mark.parametrize(
    ("scores", "same", "message"),
    [
        (torch.rand(3, 1), torch.ones(3, 1).bool(), "shape"),
        (torch.rand(3), torch.ones(4).bool(), "shape"),
        (torch.tensor(0.5), torch.tensor(True), "shape"),
        (torch.rand(0), torch.rand(0) > 0, "both kinds"),
        (torch.rand(3), torch.ones(3).bool(), "both kinds of pairs, got 3 same of 3"),
        (torch.rand(3), torch.zeros(3).bool(), "both kinds"),
        (torch.rand(3), torch.tensor([0, 1, 2]), "boolean or integers 0 and 1"),
        (torch.rand(3), torch.rand(3), "boolean or integers 0 and 1"),
        (torch.rand(3) > 0.5, torch.tensor([True, False, True]), "real numbers"),
    ],
)
def test_refuses_wrong_shapes_and_types(scores, same, message):
    with pytest.raises(ValueError, match=message):
        roc_curve(scores, same)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64])
def test_every_real_dtype(dtype):
    roc = roc_curve(torch.tensor([3, 2, 1, 0]).to(dtype), torch.tensor([1, 0, 1, 0]))
    assert roc.auc == 0.75


def delong(scores, same):
    """Compute the variance of the AUC by its definition, over all pairs of pairs."""
    x, y = scores[same].double().tolist(), scores[~same].double().tolist()
    psi = [[1.0 if a > b else 0.5 if a == b else 0.0 for b in y] for a in x]
    rows, columns = [sum(row) / len(y) for row in psi], [sum(column) / len(x) for column in zip(*psi, strict=True)]
    variance = lambda v: np.var(v, ddof=1) if len(v) > 1 else 0.0
    return variance(rows) / len(x) + variance(columns) / len(y)


@given(pairs())
def test_the_interval_of_the_auc_agrees_with_delong(case):
    area = roc_curve(*case).auc
    half = 1.959964 * math.sqrt(delong(*case))
    assert area.low == pytest.approx(max(area - half, 0), abs=1e-6)
    assert area.high == pytest.approx(min(area + half, 1), abs=1e-6)


@given(pairs())
def test_the_interval_of_the_eer_contains_it(case):
    eer = roc_curve(*case).eer
    assert 0 <= eer.low <= eer <= eer.high <= 1


def test_intervals_cover_the_truth():
    # Scores N(0, 1) and N(2, 1): EER = Φ(−1), AUC = Φ(√2).
    same = torch.arange(2000) < 1000
    truth = 0.5 * math.erfc(1 / math.sqrt(2)), 0.5 * math.erfc(-1.0)
    hits = [0, 0]
    for _ in range(200):
        roc = roc_curve(torch.randn(2000) + 2 * same, same)
        for i, measured in enumerate((roc.eer, roc.auc)):
            hits[i] += measured.low <= truth[i] <= measured.high
    assert hits[0] >= 190  # the interval of the EER is conservative
    assert 180 <= hits[1] <= 198  # 190 expected, deviation 3.1


def test_resolved_false_accept_rates():
    roc = roc_curve(torch.rand(2000), torch.arange(2000) < 1000)
    assert roc.resolve_fars([0.1, 1e-3, 9e-4]) == [0.1, 1e-3]


@given(pairs(), st.integers(1, 20))
def test_the_curve_agrees_with_that_of_all_scores(case, chunk):
    scores, same = case
    stream = StreamedRoc(scores[same])
    for part in scores[~same].split(chunk):
        stream.update(part)
    streamed, kept = stream.roc(), roc_curve(scores, same)
    assert (streamed.positives, streamed.negatives) == (kept.positives, kept.negatives)
    assert streamed.auc == kept.auc
    assert streamed.auc.interval == pytest.approx(kept.auc.interval)
    assert streamed.eer == pytest.approx(float(kept.eer), abs=1e-12)
    for far in [1 / kept.negatives, 0.1, 0.5, 1.0]:
        if kept.resolve_fars([far]):
            assert streamed.accepted_same[streamed.at_far(far)] == kept.accepted_same[kept.at_far(far)]


@given(pairs(), st.sampled_from([-0.75, 0.1, 0.2, 2.0]))
def test_counts_agree_with_the_thresholds(case, extra):
    scores, same = case
    stream = StreamedRoc(scores[same], at=torch.tensor([extra]))
    stream.update(scores[~same])
    roc = stream.roc()
    assert extra in roc.thresholds.float().tolist() or torch.tensor(extra).double() in roc.thresholds
    scores = scores.double() + 0.0
    for t, accepted, false in zip(roc.thresholds, roc.accepted_same, roc.accepted_different, strict=True):
        assert accepted == (scores[same] >= t).sum()
        assert false == (scores[~same] >= t).sum()


@pytest.mark.parametrize("same", [[0.0], [-1.7e308, 1.7e308], [0.3, 0.3 + 1e-16], [1e-310, 2e-310, 1.0]])
def test_extreme_scores_are_counted_exactly(same):
    same = torch.tensor(same, dtype=torch.float64)
    more = torch.tensor([-1.7e308, -1.0, -0.0, 1e-310, 0.3, 1.0, 1.7e308], dtype=torch.float64)
    different = torch.cat([same, more, torch.nextafter(same, more[:1]), torch.nextafter(same, more[-1:])])
    stream = StreamedRoc(same)
    stream.update(different)
    cuts = same.unique()
    below = [int((different < cut).sum()) for cut in cuts]
    through = [int((different <= cut).sum()) for cut in cuts]
    ends = torch.tensor([below, through]).T.flatten()
    assert stream.counts.cumsum(0)[:-1].tolist() == ends.tolist()
    assert int(stream.counts.sum()) == len(different)


def test_shards_add_up():
    same, different = torch.randn(50) + 1, torch.randn(1000)
    whole, left, right = (StreamedRoc(same) for _ in range(3))
    whole.update(different)
    left.update(different[:400])
    right.update(different[400:])
    right.update(different[:0])
    left.merge(right)
    assert torch.equal(left.roc().accepted_different, whole.roc().accepted_different)
    assert torch.equal(left.roc().thresholds, whole.roc().thresholds)


def test_memory_grows_only_with_the_same_pairs():
    stream = StreamedRoc(torch.rand(10))
    sizes = set()
    for _ in range(5):
        stream.update(torch.rand(10_000))
        sizes.add(stream.counts.numel() + stream.cuts.numel())
    assert sizes == {31}
    assert stream.roc().negatives == 50_000


def test_refuses():
    with pytest.raises(ValueError, match="same must hold at least one score"):
        StreamedRoc(torch.rand(0))
    with pytest.raises(ValueError, match="same must be finite, got 1 that are not"):
        StreamedRoc(torch.tensor([torch.nan]))
    stream = StreamedRoc(torch.rand(3))
    with pytest.raises(ValueError, match="no different pairs were added"):
        stream.roc()
    with pytest.raises(ValueError, match="different must be finite"):
        stream.update(torch.tensor([torch.inf]))
    with pytest.raises(ValueError, match="different must be real scores"):
        stream.update(torch.tensor([True]))
    with pytest.raises(ValueError, match="other must count against the same scores"):
        stream.merge(StreamedRoc(torch.rand(3)))
