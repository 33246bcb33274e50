import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hypersphere.data.streams import RESAMPLE, Stream
from hypersphere.evaluation import _verification as module
from hypersphere.evaluation import all_pairs, roc_curve, verification, wilson
from hypersphere.evaluation._verification import PairIntervals, assign_folds, resample_pairs
from hypersphere.evaluation.ranking import make_masks
from hypersphere.evaluation.scoring import CosineScore
from hypersphere.evaluation.thresholds import choose_accurate_threshold
from tests.evaluation.contracts import ReportContract
from tests.evaluation.test_roc import pairs


def brute_accuracy(scores, same, fold):
    """Compute accuracies with loops: choose the highest of the best thresholds on the other folds for each fold."""
    scores, same, accuracies = scores.double().tolist(), same.tolist(), []
    for i in sorted(set(fold.tolist())):
        train = [(s, y) for s, y, f in zip(scores, same, fold.tolist(), strict=True) if f != i]
        values = sorted({s for s, _ in train})
        candidates = [-math.inf, *((a + b) / 2 for a, b in itertools.pairwise(values)), math.inf]
        best = max(candidates, key=lambda t: (sum((s >= t) == y for s, y in train), t))
        held = [(s, y) for s, y, f in zip(scores, same, fold.tolist(), strict=True) if f == i]
        accuracies.append(sum((s >= best) == y for s, y in held) / len(held))
    return accuracies


class TestVerificationReport(ReportContract):
    @pytest.fixture
    def report(self):
        same = torch.arange(4000) % 2 == 0
        return verification(torch.randn(4000) + 2 * same, same)


@given(pairs(least=6), st.integers(2, 6))
def test_accuracy_agrees_with_the_protocol(case, folds):
    scores, same = case
    report = verification(scores, same, folds)
    expected = brute_accuracy(report.scores, report.same, report.fold)
    assert sorted(zip(report.scores.tolist(), report.same.tolist(), strict=True)) == sorted(
        zip((scores.double() + 0.0).tolist(), same.tolist(), strict=True)
    )
    np.testing.assert_allclose(report.accuracies, expected)
    assert report.accuracy == pytest.approx(np.mean(expected))
    assert report.spread == pytest.approx(np.std(expected, ddof=1))


@given(pairs(least=6), st.integers(2, 5))
def test_folds_may_have_any_numbers(case, folds):
    scores, same = case
    fold = torch.tensor([7 * (i % folds) - 3 for i in range(len(scores))])
    np.testing.assert_allclose(verification(scores, same, fold=fold).accuracies, brute_accuracy(scores, same, fold))


@given(pairs(least=10), st.randoms(use_true_random=False))
def test_order_changes_nothing(case, random):
    scores, same = case
    order = list(range(len(scores)))
    random.shuffle(order)
    assert verification(scores[order], same[order]).json() == verification(scores, same).json()


@given(pairs(least=10))
def test_an_increasing_function_of_the_scores_changes_only_thresholds(case):
    scores, same = case
    plain, mapped = verification(scores.double(), same), verification(scores.double().exp() * 3, same)
    for figure, other in zip(plain.figures(), mapped.figures(), strict=True):
        # Thresholds change, and with them the midpoints between two scores.
        assert figure == other or "threshold" in figure.name or "accuracy" in figure.name


def test_the_threshold_never_sees_the_pairs_it_is_scored_on():
    # The scores of fold 1 are shifted. Its own best threshold would be perfect, but that of the other folds rejects
    # all of its pairs.
    same = torch.tensor([True, False] * 10)
    scores = same.double() + torch.tensor([0.0] * 10 + [-5.0] * 10)
    fold = torch.tensor([0] * 10 + [1] * 10)
    assert verification(scores, same, fold=fold).accuracies.tolist() == [0.5, 0.5]


def test_random_scores_are_at_chance():
    # Choosing the threshold on the scored pairs would give clearly more than one half for so few pairs.
    accuracy = [verification(torch.randn(40), torch.arange(40) % 2 == 0).accuracy for _ in range(100)]
    assert np.mean(accuracy) == pytest.approx(0.47, abs=0.04)


@given(pairs(least=6), st.integers(2, 6), st.integers(0, 5))
def test_folds_are_even_in_both_kinds(case, folds, seed):
    _scores, same = case
    fold = assign_folds(same, folds, seed)
    for kind in (same, ~same, torch.ones_like(same)):
        counts = torch.bincount(fold[kind], minlength=folds)
        assert counts.max() - counts.min() <= 1


def test_another_seed_draws_other_folds():
    scores, same = torch.rand(100), torch.arange(100) % 2 == 0
    assert not torch.equal(verification(scores, same, seed=0).fold, verification(scores, same, seed=1).fold)


@given(pairs())
def test_tar_is_the_largest_at_the_rate(case):
    scores, same = case
    far = max(0.1, 1 / int((~same).sum()))
    rate = verification(scores, same).tar(far)
    possible = [
        (scores[same] >= t).double().mean().item()
        for t in [*scores.tolist(), math.inf]
        if (scores[~same] >= t).double().mean() <= far
    ]
    assert rate == pytest.approx(max(possible))
    threshold = verification(scores, same).threshold(far)
    assert (scores[same] >= threshold).double().mean().item() == pytest.approx(rate)
    assert (scores[~same] >= threshold).double().mean() <= far + 1e-12
    assert rate.low <= rate <= rate.high


def test_an_unresolved_rate_is_refused():
    report = verification(torch.rand(1998), torch.arange(1998) % 2 == 0)
    assert 0 <= report.tar(2e-3) <= 1
    with pytest.raises(ValueError, match=r"far=0.001 needs at least 1000 different pairs to be resolved, got 999"):
        report.tar(1e-3)


def test_the_interval_covers_the_truth():
    # TAR at FAR 0.1: about 95 of 100 intervals should contain the true value.
    same = torch.arange(4000) % 2 == 0
    truth = 0.5 * math.erfc((1.2816 - 1.5) / math.sqrt(2))
    hits = 0
    for _ in range(100):
        rate = verification(torch.randn(4000) + 1.5 * same, same).tar(0.1)
        hits += rate.low - 0.02 <= truth <= rate.high + 0.02  # the threshold itself is estimated: ±0.02 of TAR
    assert hits >= 90


def test_few_pairs_have_all_figures_except_those_of_folds():
    report = verification(torch.tensor([0.9, 0.8, 0.3, 0.1]), torch.tensor([True, True, False, False]))
    assert (report.auc, report.eer) == (1.0, 0.0)
    assert "accuracy" not in report.numbers()
    with pytest.raises(ValueError, match="folds must be at most the number of pairs, got 10 folds of 4 pairs"):
        report.accuracy


def test_neighboring_doubles_are_distinguished():
    low = 0.1
    scores = torch.tensor([math.nextafter(low, 1), low], dtype=torch.float64)
    threshold = choose_accurate_threshold(scores, torch.tensor([True, False]))
    assert (scores >= threshold).tolist() == [True, False]


def test_one_kind_of_pair_in_the_other_folds():
    report = verification(
        torch.tensor([0.9, 0.8, 0.1]), torch.tensor([True, True, False]), fold=torch.tensor([0, 0, 1])
    )
    assert report.accuracies.tolist() == [0.0, 0.0]  # the other fold has only different pairs, then only same pairs


@pytest.mark.parametrize("folds", [1, 0, -3])
def test_refuses_folds(folds):
    with pytest.raises(ValueError, match="folds must be an integer ≥ 2"):
        verification(torch.rand(4), torch.tensor([True, False, True, False]), folds)


@pytest.mark.parametrize("fold", [torch.zeros(4).long(), torch.zeros(3).long(), torch.rand(4)])
def test_refuses_fold_numbers(fold):
    with pytest.raises(ValueError, match="fold must"):
        verification(torch.rand(4), torch.tensor([True, False, True, False]), fold=fold)


def test_a_million_pairs_take_seconds_at_most():
    same = torch.arange(1_000_000) % 2 == 0
    report = verification(torch.randn(1_000_000) + 3 * same, same)
    assert report.accuracy == pytest.approx(0.9332, abs=2e-3)  # Φ(1.5)
    assert report.eer == pytest.approx(0.0668, abs=2e-3)


def brute_refitted(rows, same, fold):
    """Compute SphereFace's evaluation with loops: each fold's threshold is chosen on all other pairs in its row."""
    accuracies = []
    for k in sorted(set(fold.tolist())):
        held = fold == k
        labelled = torch.cat([rows[k, ~held], rows[k, held]])
        kinds, parts = torch.cat([same[~held], same[held]]), torch.arange(len(same)) >= int((~held).sum())
        accuracies.append(brute_accuracy(labelled, kinds, parts.long())[1])
    return accuracies


@given(pairs(least=6), st.integers(2, 4), st.randoms(use_true_random=False))
def test_each_fold_uses_its_own_transform(case, folds, random):
    scores, same = case
    fold = torch.tensor([i % folds for i in range(len(scores))])
    rows = torch.stack([scores.double() * random.choice([1, 2, -1]) + random.random() for _ in range(folds)])
    report = verification(rows, same, fold=3 * fold - 1)
    np.testing.assert_allclose(report.accuracies, brute_refitted(rows, same, fold))
    held = rows[fold, torch.arange(len(fold))]
    assert float(report.auc) == float(verification(held, same).auc)
    assert float(report.eer) == float(verification(held, same).eer)


def test_mixed_transforms_choose_another_threshold():
    # The scores of fold 1 have another scale, so its threshold must be chosen on its own row.
    same = torch.tensor([True, False]).repeat(20)
    fold = torch.arange(40) // 20
    rows = torch.stack([same.double(), 100 + same.double()])
    assert verification(rows, same, fold=fold).accuracy == 1
    assert verification(rows[fold, torch.arange(40)], same, fold=fold).accuracy == 0.5


@pytest.mark.parametrize(
    ("rows", "fold", "message"),
    [
        (torch.rand(2, 4), None, "need same and fold"),
        (torch.rand(2, 3), torch.tensor([0, 1, 0, 1]), "need same and fold"),
        (torch.rand(3, 4), torch.tensor([0, 1, 0, 1]), "a row for each of 2 folds, got 3"),
        (torch.tensor([[0.0, 0, 0, 0], [math.nan, 0, 0, 0]]), torch.tensor([0, 1, 0, 1]), "finite"),
    ],
)
def test_refuses_rows(rows, fold, message):
    with pytest.raises(ValueError, match=message):
        verification(rows, torch.tensor([True, False, True, False]), fold=fold)


def people(count=12, each=4, noise=0.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count).repeat_interleave(each)
    centers = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    return centers[labels] + noise * torch.randn(len(labels), 6, generator=generator, dtype=torch.float64), labels


def resampled(features, labels, masks=None, **options):
    masks = make_masks(None, None, labels) if masks is None else masks
    counted = all_pairs(features, labels, masks=masks, highest=module.HIGHEST_PAIRS)
    return counted, resample_pairs(features, labels, counted, CosineScore(), masks, **options)


def brute_force(scores, same, labels, index, resamples, seed, far):
    """Compute EER and TAR of every resample from copies of pairs."""
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
    masks = make_masks(queries, ~queries, labels) if sided else make_masks(None, None, labels)
    counted, found = resampled(features, labels, masks, resamples=60, seed=3)
    index = torch.combinations(torch.arange(len(labels)))
    index = index[masks.are_compared(index[:, 0], index[:, 1])]
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


def test_a_sample_of_pairs_represents_all_pairs(monkeypatch):
    features, labels = people(count=60, each=6, noise=1.2)
    counted, whole = resampled(features, labels, resamples=200)
    monkeypatch.setattr(module, "HIGHEST_PAIRS", 4000)
    monkeypatch.setattr(module, "MAX_SAMPLED_PAIRS", 4000)
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


def test_few_people_give_the_interval_of_independent_pairs():
    features, labels = people(count=2)
    counted, found = resampled(features, labels)
    assert found.of("eer", counted.roc.eer) is not None
    trials = PairIntervals(torch.rand(8), torch.arange(8) < 4, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), resamples=50)
    assert trials.of("auc", counted.roc.auc).over in ("identities", "independent trials")


@pytest.mark.untyped  # many calls, whose types other tests check
@pytest.mark.parametrize("count", [8, 20])
def test_intervals_of_the_eer_cover_the_truth_where_people_differ(count):
    # People differ in how well they are recognized. The score of a same pair has a term of its person, the score of a
    # different pair has a term of each person. Scores are normal with standard deviation √2 and means that differ by 2,
    # so the EER is Φ(−1/√2).
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
