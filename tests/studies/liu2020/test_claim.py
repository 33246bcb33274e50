import dataclasses

import pytest
from scipy import stats

from hypersphere.training import replace
from studies.liu2020 import Check, Training, decide_verdict

from .tiny import claim


def values(ours, other):
    return {"ours": {"score": dict(enumerate(ours))}, "other": {"score": dict(enumerate(other))}}


@pytest.mark.parametrize(
    ("ours", "other", "larger", "outcome"),
    [
        ([3.0, 3.1, 2.9], [1.0, 1.1, 0.9], True, "holds"),
        ([3.0, 3.1, 2.9], [1.0, 1.1, 0.9], False, "reversed"),
        ([1.0, 1.1, 0.9], [3.0, 3.1, 2.9], True, "reversed"),
        ([1.0, 2.0, 0.0], [1.1, 2.0, 0.1], True, "undecided"),
        ([1.0], [3.0], True, "not measured"),
    ],
)
def test_a_difference_counts_beyond_its_paired_interval(ours, other, larger, outcome):
    assert Check("c", "score", "ours", "other", larger).decide_outcome(values(ours, other)) == outcome


def test_seeds_are_compared_one_by_one():
    """Seeds differ much more than arms do, so only a paired comparison shows the difference."""
    ours, other = [1.1, 5.12, 9.09], [1.0, 5.0, 9.0]
    assert Check("c", "score", "ours", "other").decide_outcome(values(ours, other)) == "holds"
    assert Check("c", "score", "ours", "other").compute_effect(values(ours, other)).unpaired > 1


def test_the_border_is_that_of_the_t_test():
    other, gaps = [0.0, 1.0, 2.0], [-0.1, 0.0, 0.1]
    half = stats.t.ppf(0.975, 2) * stats.sem(gaps)
    for shift, outcome in ((half * 1.01, "holds"), (half * 0.99, "undecided"), (-half * 1.01, "reversed")):
        ours = [v + gap + shift for v, gap in zip(other, gaps, strict=True)]
        assert Check("c", "score", "ours", "other").decide_outcome(values(ours, other)) == outcome


def test_no_worse_is_satisfied_by_noise_but_not_by_a_loss():
    check = Check("c", "score", "ours", "other", no_worse=True)
    assert check.decide_outcome(values([1.0, 2.0, 0.0], [1.1, 2.0, 0.1])) == "holds"
    assert check.decide_outcome(values([1.0, 1.1, 0.9], [3.0, 3.2, 2.9])) == "reversed"


def test_a_check_against_a_number_and_one_whose_arm_is_missing():
    assert Check("c", "score", "ours", 2.0, larger=False).decide_outcome(values([1.0, 1.1, 0.9], [0.0, 0.0])) == "holds"
    assert Check("c", "score", "nobody", "other").decide_outcome(values([1.0, 1.1], [0.0, 0.0])) == "not measured"
    assert Check("c", "nothing", "ours", "other").decide_outcome(values([1.0, 1.1], [0.0, 0.0])) == "not measured"


def test_the_published_change_is_relative():
    assert Check("c", "score", "ours", "other", published=(2.0, 8.0)).published_change == -75
    assert Check("c", "score", "ours", "other").published_change is None


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "not measured"], "holds so far"),
        (["holds", "reversed", "not measured"], "holds in part so far"),
        (["undecided", "not measured"], "does not hold here so far"),
        (["holds", "undecided"], "holds in part"),
        (["holds", "reversed"], "holds in part"),
        (["holds", "reversed", "reversed"], "does not hold here"),
        (["undecided", "undecided"], "does not hold here"),
        (["not measured"], "not measured"),
        ([], "not measured"),
    ],
)
def test_the_verdict_follows_from_the_checks(outcomes, expected):
    assert decide_verdict(outcomes) == expected


def test_settings_that_the_claim_is_not_about_are_named():
    assert claim().find_unfair_settings() == {}
    assert set(claim().compare_arms()[("b/margin", "a/softmax")]) >= {"head", "head.m"}
    longer = lambda size: {
        name: Training(replace(arm.config, steps=5)) if name == "b/margin" else arm
        for name, arm in claim().arms(size).items()
    }
    assert dataclasses.replace(claim(), arms=longer).find_unfair_settings() == {("b/margin", "a/softmax"): ["steps"]}


@pytest.mark.untyped
def test_sizes_are_checked():
    with pytest.raises(ValueError, match="size must be one of laptop, paper, got 'huge'"):
        claim().get_arms("huge")
