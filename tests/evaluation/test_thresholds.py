import math
from statistics import NormalDist

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc

from hypersphere.evaluation import choose_threshold, open_set, open_set_report, verification
from hypersphere.evaluation.roc import resolve_rates
from hypersphere.evaluation.thresholds import _beta_cdf, choose_accurate_threshold
from hypersphere.geometry import uniform
from hypersphere.recognition import Gallery

NORMAL = NormalDist()


@settings(max_examples=30)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.floats(0.01, 0.99), st.booleans())
def test_is_the_smallest_threshold_that_keeps_the_rate(values, rate, single):
    scores = torch.tensor(values, dtype=torch.float32 if single else torch.float64) / 7
    if rate * len(scores) < 1:
        with pytest.raises(ValueError, match=f"needs at least {math.ceil(1 / rate)} different pairs to be resolved"):
            choose_threshold(scores, far=rate)
        return
    point = choose_threshold(scores, far=rate)
    assert (scores >= point.threshold).double().mean() == float(point.rate) <= rate
    below = scores[scores < point.threshold]
    assert (scores >= below.max()).double().mean() > rate
    assert torch.nextafter(below.max(), torch.ones_like(below.max())) >= point.threshold or not single


def test_a_threshold_is_valid_for_converted_float32_scores():
    """torch rounds a Python number to float32 before comparing it, which would undo a step of float64."""
    scores = torch.rand(100)
    for impostors in (scores, scores.double()):
        threshold = choose_threshold(impostors, far=0.1).threshold
        assert (scores >= threshold).sum() == (scores.double() >= threshold).sum() == 10


def test_far_and_fpir_use_the_same_definition():
    scores = torch.rand(500)
    assert choose_threshold(scores, far=0.03) == choose_threshold(scores, fpir=0.03)


def test_evaluation_and_gallery_agree():
    """Evaluation and gallery return the same threshold for the same strangers and rate."""
    people, strangers, mated = uniform(50, 8), uniform(300, 8), uniform(50, 8)
    probes, ids = torch.cat([mated, strangers]), torch.arange(350)
    report = open_set(probes, ids, people, torch.arange(50))
    with Gallery(":memory:") as gallery:
        gallery.enrol([str(i) for i in range(50)], people)
        threshold = gallery.calibrate(fpir=0.05, strangers=strangers, people=range(300)).threshold
    promised = choose_threshold(report.ranking.best[50:], fpir=0.05, people=torch.arange(300))
    assert promised.threshold == pytest.approx(threshold, abs=1e-6)
    assert report.threshold(fpir=0.05) < threshold, "the report measures, the gallery promises"
    assert report.threshold(fpir=0.05) == choose_threshold(report.ranking.best[50:], fpir=0.05).threshold


@pytest.mark.parametrize("far", [1e-3, 1e-2, 0.1])
def test_all_pairs_verification_and_scores_agree(far):
    labels = torch.arange(40).repeat(4)
    features = uniform(160, 6)
    report = open_set_report(features, labels, fars=(1e-3, 1e-2, 0.1), resamples=10)
    index = torch.combinations(torch.arange(160))
    x = torch.nn.functional.normalize(features.double())
    scores, same = (
        (x[index[:, 0]] * x[index[:, 1]]).sum(1).round(decimals=12),
        labels[index[:, 0]] == labels[index[:, 1]],
    )
    expected = choose_threshold(scores[~same], far=far).threshold
    assert report.threshold(far=far) == pytest.approx(expected, abs=2e-12)
    assert verification(scores, same).threshold(far) == expected


def test_a_rate_that_needs_more_scores_is_refused():
    report = open_set_report(uniform(120, 6), torch.arange(40).repeat(3), fars=(1e-2,), resamples=10)
    with pytest.raises(ValueError, match=r"far=0.5 of 7020 different pairs needs the 3511 highest scores"):
        report.threshold(far=0.5)


def test_the_rate_of_one_accepts_everything():
    assert choose_threshold(torch.rand(5), far=1.0).threshold == -math.inf


@pytest.mark.parametrize(
    "options",
    [{}, {"far": 0.1, "fpir": 0.1}, {"far": 0.0}, {"fpir": 1.5}, {"far": math.nan}, {"far": 0.5, "people": True}],
)
def test_refuses_invalid_arguments(options):
    if "people" in options:
        options["people"] = torch.arange(100)
    with pytest.raises(ValueError, match=r"exactly one of|must be in \(0, 1\]|people must be given with fpir"):
        choose_threshold(torch.rand(100), **options)


@pytest.mark.parametrize(
    "scores", [torch.rand(0), torch.tensor([0.1, math.nan]), torch.rand(3, 3), torch.ones(4, dtype=torch.bool)]
)
def test_refuses_scores(scores):
    with pytest.raises(ValueError, match="impostors must be"):
        choose_threshold(scores, far=0.5)


def test_resolved_rates():
    assert resolve_rates([1e-1, 1e-2, 1e-3], 100) == [1e-1, 1e-2]


def test_the_most_accurate_threshold_is_midway_or_infinite():
    scores, same = torch.tensor([0.9, 0.8, 0.8, 0.2]).double(), torch.tensor([True, True, False, False])
    assert choose_accurate_threshold(scores, same) == pytest.approx(0.85)
    assert choose_accurate_threshold(scores, ~same) == -math.inf or choose_accurate_threshold(scores, ~same) == math.inf


def test_beta_distribution():
    a, b = 300 * torch.rand(200).double() + 0.01, 3000 * torch.rand(200).double() + 0.01
    for x in (0.001, 0.05, 0.5, 0.95):
        expected = torch.from_numpy(betainc(a.numpy(), b.numpy(), x))
        assert torch.allclose(_beta_cdf(torch.tensor(x, dtype=torch.double), a, b), expected, atol=1e-10)


@pytest.mark.untyped  # many calls, whose types other tests check
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_the_rate_over_people_is_guaranteed(correlation):
    """At least 90 % of the draws keep the rate for new strangers within the bound."""
    people, pictures, fpir, kept, draws = 30, 10, 0.1, 0, 100
    owner = torch.arange(people).repeat_interleave(pictures)
    for _ in range(draws):
        scores = correlation**0.5 * torch.randn(people, 1) + (1 - correlation) ** 0.5 * torch.randn(people, pictures)
        point = choose_threshold(scores.flatten(), fpir=fpir, people=owner)
        assert point.rate.low <= point.rate <= point.rate.high <= fpir + 1e-6
        assert point.people == people
        kept += 1 - NORMAL.cdf(point.threshold) <= fpir
    assert kept >= 0.9 * draws


def test_too_few_people_are_refused():
    with pytest.raises(ValueError, match=r"needs strangers of at least 59 people to be guaranteed .* got 5 people"):
        choose_threshold(torch.rand(50), fpir=0.05, people=torch.arange(50) % 5)


def test_agreeing_pictures_count_as_one_trial_per_person():
    scores = torch.rand(80)
    alone = choose_threshold(scores, fpir=0.05, people=torch.arange(80))
    tenfold = choose_threshold(scores.repeat(10), fpir=0.05, people=torch.arange(80).repeat(10))
    assert tenfold.threshold == alone.threshold
    assert tenfold.rate.high == pytest.approx(alone.rate.high, abs=1e-6)
