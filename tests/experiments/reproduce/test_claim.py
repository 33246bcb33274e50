import math

import pytest
from scipy import stats

from hypersphere.config import call
from hypersphere.experiments.reproduce import SIZES, Check, Estimate, rates, verdict
from hypersphere.orthogonal import overparameterize
from hypersphere.training import Config, replace

from .tiny import claim


def table(ours, other):
    return {"ours": {"score": Estimate.of(ours)}, "other": {"score": Estimate.of(other)}}


def test_standard_error_agrees_with_scipy_and_is_unknown_for_one_seed():
    values = [0.3, 0.9, 0.4, 1.7]
    assert Estimate.of(values).error == pytest.approx(stats.sem(values))
    assert math.isnan(Estimate.of([1.0]).error)


@pytest.mark.parametrize(
    ("ours", "other", "larger", "outcome"),
    [
        ([3.0, 3.1, 2.9], [1.0, 1.1, 0.9], True, "holds"),
        ([3.0, 3.1, 2.9], [1.0, 1.1, 0.9], False, "reversed"),
        ([1.0, 1.1, 0.9], [3.0, 3.1, 2.9], True, "reversed"),
        ([1.0, 2.0, 0.0], [1.1, 2.1, 0.1], True, "within noise"),
        ([1.0], [3.0], True, "not measured"),
    ],
)
def test_a_difference_counts_beyond_two_standard_errors(ours, other, larger, outcome):
    assert Check("c", "score", "ours", "other", larger).outcome(table(ours, other)) == outcome


def test_the_border_is_two_standard_errors_of_the_difference():
    ours, other = [0.0, 1.0, 2.0], [0.0, 1.0, 2.0]
    border = 2 * math.sqrt(stats.sem(ours) ** 2 + stats.sem(other) ** 2)
    for shift, outcome in ((border * 1.01, "holds"), (border * 0.99, "within noise"), (-border * 1.01, "reversed")):
        assert Check("c", "score", "ours", "other").outcome(table([v + shift for v in ours], other)) == outcome


def test_no_worse_is_satisfied_by_noise_but_not_by_a_loss():
    check = Check("c", "score", "ours", "other", no_worse=True)
    assert check.outcome(table([1.0, 2.0, 0.0], [1.1, 2.1, 0.1])) == "holds"
    assert check.outcome(table([1.0, 1.1, 0.9], [3.0, 3.1, 2.9])) == "reversed"


def test_a_check_against_a_number_and_one_whose_arm_is_missing():
    assert Check("c", "score", "ours", 2.0, larger=False).outcome(table([1.0, 1.1, 0.9], [0.0, 0.0])) == "holds"
    assert Check("c", "score", "nobody", "other").outcome(table([1.0, 1.1], [0.0, 0.0])) == "not measured"
    assert Check("c", "nothing", "ours", "other").outcome(table([1.0, 1.1], [0.0, 0.0])) == "not measured"


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "not measured"], "holds"),
        (["holds", "within noise"], "holds in part"),
        (["holds", "reversed"], "holds in part"),
        (["holds", "reversed", "reversed"], "does not hold here"),
        (["within noise", "within noise"], "does not hold here"),
        (["not measured"], "not measured"),
        ([], "not measured"),
    ],
)
def test_the_verdict_follows_from_the_checks(outcomes, expected):
    assert verdict(outcomes) == expected


def test_rates_multiply_the_rate_and_that_of_rotations_where_there_are_any():
    grid = rates(1, 3)
    assert list(grid) == ["lr × 1", "lr × 3"]
    plain, turned = Config(), replace(Config(), orthogonal=call(overparameterize, method="ogd"))
    assert grid["lr × 3"](plain).optimizer.get("lr") == 0.3
    assert grid["lr × 3"](plain).rotations == plain.rotations
    assert grid["lr × 3"](turned).rotations.get("lr") == 0.03


@pytest.mark.untyped
def test_sizes_are_checked_and_runs_named():
    for size in SIZES:
        assert claim().configs(size)["a/softmax"].name == "tiny a/softmax"
    with pytest.raises(ValueError, match="size must be one of laptop, paper, got 'huge'"):
        claim().configs("huge")
