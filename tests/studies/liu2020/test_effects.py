import math

import pytest
from scipy import stats

from studies.liu2020 import Effect, Estimate
from studies.liu2020.effects import compute_t_quantile

A, B = [0.3, 0.9, 0.4, 1.7], [0.1, 0.6, 0.6, 1.1]


def seeded(values):
    return dict(enumerate(values))


def test_standard_error_agrees_with_scipy_and_is_unknown_for_one_seed():
    assert Estimate.of(A).error == pytest.approx(stats.sem(A))
    assert math.isnan(Estimate.of([1.0]).error)


def test_the_paired_interval_is_that_of_scipys_paired_test():
    effect = Effect.between(seeded(A), seeded(B))
    interval = stats.ttest_rel(A, B).confidence_interval(0.95)
    assert (effect.mean - effect.paired, effect.mean + effect.paired) == pytest.approx((interval.low, interval.high))
    assert (effect.seeds, effect.reference) == (4, pytest.approx(0.6))


def test_the_unpaired_interval_is_that_of_welchs_test():
    effect = Effect.between(seeded(A), seeded(B))
    interval = stats.ttest_ind(A, B, equal_var=False).confidence_interval(0.95)
    ends = (effect.mean - effect.unpaired, effect.mean + effect.unpaired)
    assert ends == pytest.approx((interval.low, interval.high))


def test_against_a_number_it_is_the_interval_of_one_sample():
    effect = Effect.between(seeded(A), 0.5)
    interval = stats.ttest_1samp(A, 0.5).confidence_interval(0.95)
    ends = (0.5 + effect.mean - effect.paired, 0.5 + effect.mean + effect.paired)
    assert ends == pytest.approx((interval.low, interval.high))
    assert effect.unpaired == effect.paired


def test_only_seeds_that_both_have_are_compared():
    effect = Effect.between({0: 1.0, 1: 2.0, 7: 100.0}, {0: 0.5, 1: 1.5, 3: -100.0})
    assert (effect.mean, effect.seeds) == (0.5, 2)


@pytest.mark.parametrize("other", [{0: 1.0}, {5: 1.0, 6: 2.0}, {}])
def test_fewer_than_two_pairs_measure_nothing(other):
    assert Effect.between({0: 1.0, 1: 2.0}, other) is None
    assert Effect.between({0: 1.0}, 0.5) is None


def test_relative_changes_are_of_the_others_size():
    effect = Effect.between({0: -3.0, 1: -3.0}, {0: -2.0, 1: -2.0})
    assert effect.relative == (-50.0, -50.0, -50.0)
    assert effect.unpaired == 0


def test_quantiles_agree_with_scipy():
    assert compute_t_quantile(3.5, 0.9) == pytest.approx(stats.t.ppf(0.95, 3.5))
