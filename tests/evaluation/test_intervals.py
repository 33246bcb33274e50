import copy
import math
import pickle

import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import Measurement, mean_interval, wilson


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_is_scipys(counts, confidence):
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
