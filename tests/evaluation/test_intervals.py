import copy
import math
import pickle

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hypersphere.data.streams import RESAMPLE, Stream
from hypersphere.evaluation import Measurement, mean_interval, roc_curve, wilson
from hypersphere.evaluation import intervals as module
from hypersphere.evaluation.intervals import (
    Identities,
    SortedTrials,
    clustered_mean,
    draw_counts,
    percentile_interval,
    split_resamples,
    student_quantile,
    widen_interval,
)
from tests.evaluation.test_roc import pairs


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_agrees_with_scipy(counts, confidence):
    k, n = counts
    rate = wilson(k, n, confidence)
    expected = scipy.stats.binomtest(k, n).proportion_ci(confidence, method="wilson")
    assert rate == k / n
    assert rate.low == pytest.approx(expected.low, abs=1e-12)
    assert rate.high == pytest.approx(expected.high, abs=1e-12)
    assert 0 <= rate.low <= rate <= rate.high <= 1


def test_mean_interval_is_the_normal_one():
    values = torch.rand(700)
    estimate = mean_interval(values, 0.9)
    low, high = scipy.stats.norm.interval(0.9, values.double().mean().item(), scipy.stats.sem(values.double().numpy()))
    assert estimate.interval == pytest.approx((low, high))


def test_a_measurement_survives_copies():
    rate = wilson(3, 7)
    for again in (copy.deepcopy(rate), pickle.loads(pickle.dumps(rate))):
        assert isinstance(again, Measurement)
        assert (again, again.low, again.high) == (rate, rate.low, rate.high)


@pytest.mark.parametrize(("k", "n"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses(k, n):
    with pytest.raises(ValueError, match="successes must be between 0 and trials"):
        wilson(k, n)


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
def test_refuses_a_confidence(confidence):
    with pytest.raises(ValueError, match="confidence must be between 0 and 1"):
        wilson(1, 2, confidence)


def test_mean_interval_refuses_one_value():
    with pytest.raises(ValueError, match="at least two entries"):
        mean_interval(torch.ones(1))


@given(pairs(), st.randoms(use_true_random=False))
def test_a_weight_is_a_number_of_copies(case, random):
    scores, same = case
    times = torch.tensor([[random.randint(0, 3) for _ in range(len(scores))] for _ in range(2)])
    curve = SortedTrials(scores.double() + 0.0, same).curve(times.double())
    for row in range(2):
        copies, kinds = scores.repeat_interleave(times[row]), same.repeat_interleave(times[row])
        found = [curve.measure(name, 0.3)[row].item() for name in ("eer", "auc", "tar")]
        if not kinds.any() or kinds.all():
            assert np.isnan(found).all()
            continue
        roc = roc_curve(copies, kinds)
        allowed = [t for f, t in zip(roc.far.tolist(), roc.tar.tolist(), strict=True) if f <= 0.3 + 1e-12]
        assert found == pytest.approx([float(roc.eer), float(roc.auc), max(allowed)], abs=1e-12)


@given(pairs())
def test_a_base_is_a_weight(case):
    scores, same = case
    base = torch.arange(1, len(scores) + 1).double()
    stands = SortedTrials(scores.double(), same, base).curve(torch.ones(1, len(scores)))
    weighed = SortedTrials(scores.double(), same).curve(base[None])
    assert torch.equal(stands.tar, weighed.tar)
    assert torch.equal(stands.far, weighed.far)


def test_draws_do_not_depend_on_the_blocks():
    whole = draw_counts(7, 0, 9, 5)
    assert torch.equal(whole, torch.cat([draw_counts(7, 0, 4, 5), draw_counts(7, 4, 9, 5)]))
    for i, row in enumerate(whole):
        assert row.tolist() == np.bincount(Stream(5, RESAMPLE, i).integers(7, 7).numpy(), minlength=7).tolist()
    assert [i for start, stop in split_resamples(2**19, 11) for i in range(start, stop)] == list(range(11))


def test_identities_are_drawn_with_their_pairs():
    owners = torch.tensor([[5, 5], [5, 9], [9, 9], [7, 9]])
    same = owners[:, 0] == owners[:, 1]
    chosen = Stream(3, RESAMPLE, 4).integers(3, 3).tolist()  # of 5, 7, 9
    times = {name: chosen.count(i) for i, name in enumerate((5, 7, 9))}
    trials, places = SortedTrials(torch.tensor([0.4, 0.3, 0.2, 0.1]), same), torch.arange(4)
    identities = Identities(owners, resamples=6, seed=3)
    assert identities.sum_weights(trials, places, 4, same=True)[4].tolist() == [times[5], 0, times[9], 0]
    assert identities.sum_weights(trials, places, 4, same=False)[4].tolist() == [
        0,
        times[5] * times[9],
        0,
        times[7] * times[9],
    ]


def test_selected_thresholds_give_accurate_measures(monkeypatch):
    labels = torch.arange(30).repeat_interleave(4)
    index = torch.combinations(torch.arange(120))
    same = labels[index[:, 0]] == labels[index[:, 1]]
    trials = SortedTrials(torch.randn(len(same)) + 2 * same, same)
    identities = Identities(labels[index], resamples=20)
    monkeypatch.setattr(module, "MAX_THRESHOLDS", 10**6)
    every = trials.resample(identities)
    monkeypatch.setattr(module, "MAX_THRESHOLDS", 150)
    few = trials.resample(identities)
    assert few.tar.shape[1] <= 153 < every.tar.shape[1]
    for measure in ("eer", "auc", "tar"):
        # At most two of the 180 same pairs lie between two thresholds. Each counts once per draw of its identity.
        most = 2 * draw_counts(30, 0, 20, 0).max().item() / 180
        assert torch.allclose(few.measure(measure, 0.01), every.measure(measure, 0.01), atol=most)


def test_a_clustered_mean_agrees_with_copies_of_groups():
    values, groups = torch.rand(40), torch.randint(0, 6, (40,))
    names = groups.unique().tolist()
    rows = []
    for i in range(200):
        chosen = Stream(2, RESAMPLE, i).integers(len(names), len(names)).tolist()
        rows.append(np.concatenate([values[groups == names[c]].double().numpy() for c in chosen]).mean())
    level = stats.norm.cdf(-math.sqrt(len(names) / (len(names) - 1)) * stats.t.ppf(0.975, len(names) - 1))
    low, high = np.quantile(rows, [level, 1 - level])
    alone = mean_interval(values)
    found = clustered_mean(values, groups, resamples=200, seed=2)
    assert found == pytest.approx(float(values.double().mean()))
    assert found.interval == pytest.approx((min(low, alone.low), max(high, alone.high)))
    assert found.over == "identities"


def test_without_groups_trials_are_independent():
    hits = torch.rand(50) < 0.7
    assert clustered_mean(hits, None).interval == wilson(int(hits.sum()), 50).interval
    assert (
        clustered_mean(hits, torch.zeros(50).long()).over == "independent trials"
    )  # one identity gives no interval over identities
    assert clustered_mean(torch.tensor([0.25]), None).interval == (0.0, 1.0)


def test_no_interval_is_narrower_than_that_of_independent_trials():
    hits = torch.ones(60, dtype=torch.bool)
    assert clustered_mean(hits, torch.arange(60) // 10).interval == wilson(60, 60).interval
    assert widen_interval(Measurement(0.5, 0.4, 0.6), Measurement(0.5, 0.45, 0.7)).interval == (0.4, 0.7)


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 9, 30, 200, 5000])
def test_student_quantile_agrees_with_scipy(degrees):
    assert student_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-6)


def test_percentiles_are_shifted_by_the_center():
    rows = torch.randn(1000, dtype=torch.float64)
    here, moved = percentile_interval(0.0, rows, 50), percentile_interval(0.3, rows + 1, 50, center=1.0)
    assert moved.interval == pytest.approx((here.low + 0.3, here.high + 0.3))


@pytest.mark.parametrize(("people", "images"), [(8, 12), (40, 12)])
def test_intervals_of_rates_cover_the_truth_where_people_differ(people, images):
    # Rates of people are uniform in 0.5 … 1, so the true mean is 0.75. Wilson's interval would miss it too often.
    generator = torch.Generator().manual_seed(0)
    clustered = alone = 0
    for _ in range(300):
        rate = 0.5 + torch.rand(people, 1, generator=generator) / 2
        hits = (torch.rand(people, images, generator=generator) < rate).flatten()
        groups = torch.arange(people).repeat_interleave(images)
        found = clustered_mean(hits, groups, resamples=200)  # the draws of a seed are cached
        clustered += found.low <= 0.75 <= found.high
        alone += wilson(int(hits.sum()), len(hits)).low <= 0.75 <= wilson(int(hits.sum()), len(hits)).high
    assert clustered >= 276  # 92 %: 285 expected of 300, deviation 3.8
    assert alone < clustered
