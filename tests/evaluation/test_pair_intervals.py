import math

import numpy as np
import pytest
import torch
from scipy import stats

from hypersphere.data.streams import RESAMPLE, Stream
from hypersphere.evaluation import all_pairs, roc_curve, wilson
from hypersphere.evaluation import pair_intervals as module
from hypersphere.evaluation.pair_intervals import PairIntervals, resample_pairs
from hypersphere.evaluation.query_gallery import query_gallery
from hypersphere.evaluation.scoring import CosineScore


def people(count=12, each=4, noise=0.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count).repeat_interleave(each)
    centres = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    return centres[labels] + noise * torch.randn(len(labels), 6, generator=generator, dtype=torch.float64), labels


def resampled(features, labels, sides=None, **options):
    sides = query_gallery(None, None, labels) if sides is None else sides
    counted = all_pairs(features, labels, sides=sides, highest=module.HIGHEST)
    return counted, resample_pairs(features, labels, counted, CosineScore(), sides, **options)


def brute_force(scores, same, labels, index, resamples, seed, far):
    """EER and TAR of every resample, by copies of pairs."""
    names = labels.unique().tolist()
    rows = []
    for i in range(resamples):
        times = dict.fromkeys(names, 0)
        for c in Stream(seed, RESAMPLE, i).integers(len(names), len(names)).tolist():
            times[names[c]] += 1
        copies = [
            times[a] if a == b else times[a] * times[b]
            for a, b in zip(*(labels[index[:, k]].tolist() for k in (0, 1)), strict=True)
        ]
        kept = torch.tensor(copies)
        roc = roc_curve(scores.repeat_interleave(kept), same.repeat_interleave(kept))
        rows.append([float(roc.eer), float(roc.tar[roc.far <= far + 1e-12][-1])])
    return np.array(rows)


@pytest.mark.parametrize("sided", [False, True])
def test_agrees_with_copies_of_pairs(sided):
    features, labels = people()
    queries = torch.rand(len(labels), generator=torch.Generator().manual_seed(1)) < 0.5
    sides = query_gallery(queries, ~queries, labels) if sided else query_gallery(None, None, labels)
    counted, found = resampled(features, labels, sides, resamples=60, seed=3)
    index = torch.combinations(torch.arange(len(labels)))
    index = index[sides.are_compared(index[:, 0], index[:, 1])]
    x = features / features.norm(dim=1, keepdim=True)
    scores, same = (x[index[:, 0]] * x[index[:, 1]]).sum(1), labels[index[:, 0]] == labels[index[:, 1]]
    rows = brute_force(scores, same, labels, index, 60, 3, 0.1)
    level = stats.norm.cdf(-math.sqrt(12 / 11) * stats.t.ppf(0.975, 11))
    for column, (measure, alone, far) in enumerate(
        [
            ("eer", counted.roc.eer, 0.0),
            ("tar", wilson(int(counted.roc.accepted_same[counted.roc.at_far(0.1)]), counted.roc.positives), 0.1),
        ]
    ):
        low, high = np.quantile(rows[:, column], [level, 1 - level])
        wide = found.of(measure, alone, far)
        assert wide == float(alone)
        assert wide.interval == pytest.approx((min(low, alone.low), max(high, alone.high)), abs=1e-9)


def test_a_sample_of_pairs_stands_for_all(monkeypatch):
    features, labels = people(count=60, each=6, noise=1.2)
    counted, whole = resampled(features, labels, resamples=200)
    monkeypatch.setattr(module, "HIGHEST", 4000)
    monkeypatch.setattr(module, "SAMPLED", 4000)
    _, part = resampled(features, labels, resamples=200)
    assert float(part.trials.base[~part.trials.same].sum()) == pytest.approx(counted.roc.negatives)
    assert len(part.trials.scores) < len(whole.trials.scores) / 3
    for measure, alone, far in (
        ("eer", counted.roc.eer, 0.0),
        ("tar", wilson(int(counted.roc.accepted_same[counted.roc.at_far(1e-2)]), counted.roc.positives), 1e-2),
    ):
        exact, some = whole.of(measure, alone, far), part.of(measure, alone, far)
        assert some == exact
        assert some.interval == pytest.approx(exact.interval, abs=0.25 * (exact.high - exact.low))


def test_rates_at_a_threshold():
    features, labels = people()
    counted, found = resampled(features, labels, resamples=80)
    accepted = counted.roc.at_far(0.05)
    threshold = counted.roc.thresholds[accepted].item()
    alone = wilson(int(counted.roc.accepted_different[accepted]), counted.roc.negatives)
    wide = found.acceptance_rate(threshold, alone, same=False)
    assert wide == float(alone)
    assert wide.low <= alone.low < alone.high < wide.high
    assert wide.over == "identities"


def test_few_people_say_nothing():
    features, labels = people(count=2)
    counted, found = resampled(features, labels)
    assert found.of("eer", counted.roc.eer) is not None
    trials = PairIntervals(torch.rand(8), torch.arange(8) < 4, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), resamples=50)
    assert trials.of("auc", counted.roc.auc).over in ("identities", "independent trials")


@pytest.mark.parametrize("count", [8, 20])
def test_intervals_of_the_eer_cover_the_truth_where_people_differ(count):
    # People differ in how well they are recognized: the score of a same pair has a part that is its person's, that of a
    # different pair one of each of both. All scores are normal with deviation √2, two apart: the EER is Φ(−1/√2).
    truth, hits, alone, generator = stats.norm.cdf(-1 / math.sqrt(2)), 0, 0, torch.Generator().manual_seed(0)
    labels = torch.arange(count).repeat_interleave(3)
    index = torch.combinations(torch.arange(len(labels)))
    same = labels[index[:, 0]] == labels[index[:, 1]]
    for _ in range(200):
        own, goat = torch.randn(2, count, generator=generator)
        noise = torch.randn(len(index), generator=generator)
        a, b = labels[index].unbind(1)
        scores = torch.where(same, 2 + own[a] + noise, (goat[a] + goat[b]) / math.sqrt(2) + noise).double()
        eer = roc_curve(scores, same).eer
        wide = PairIntervals(scores, same, labels[index], resamples=100).of("eer", eer)
        hits += wide.low <= truth <= wide.high
        alone += eer.low <= truth <= eer.high
    assert hits >= 180  # 190 expected of 200, deviation 3.1
    assert alone < hits - 10
