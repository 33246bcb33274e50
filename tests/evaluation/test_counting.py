import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import StreamedRoc, roc_curve
from tests.evaluation.test_roc import pairs


@given(pairs(), st.integers(1, 20))
def test_the_curve_is_that_of_keeping_every_score(case, chunk):
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
        if kept.resolved([far]):
            assert streamed.accepted_same[streamed.at_far(far)] == kept.accepted_same[kept.at_far(far)]


@given(pairs(), st.sampled_from([-0.75, 0.1, 0.2, 2.0]))
def test_every_point_holds_what_its_threshold_accepts(case, extra):
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


def test_memory_grows_with_the_same_pairs_alone():
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
