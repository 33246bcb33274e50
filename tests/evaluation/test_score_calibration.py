import math

import numpy as np
import pytest
import scipy.optimize
import sklearn.isotonic
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import LogisticCalibration, calibrate_scores, score_report
from tests.evaluation.contracts import ReportContract
from tests.evaluation.test_roc import pairs


class TestScoreReport(ReportContract):
    @pytest.fixture
    def report(self):
        same = torch.arange(400) % 2 == 0
        scores = torch.randn(400) + 2 * same
        return calibrate_scores(scores[:200], same[:200]).evaluate(scores[200:], same[200:])


def balanced(same):
    return np.where(same, 0.5 / same.sum(), 0.5 / (~same).sum())


@given(pairs(least=4))
def test_logistic_agrees_with_the_minimum_of_scipy(case):
    scores, same = case[0].double().numpy(), case[1].numpy()
    weight = balanced(same)
    target = np.where(same, (same.sum() + 1) / (same.sum() + 2), 1 / ((~same).sum() + 2))

    def loss(b):
        z = b[0] * scores + b[1]
        return (weight * (np.logaddexp(0, z) - target * z)).sum()

    fitted = calibrate_scores(*case)
    assert loss([fitted.slope, fitted.offset]) <= scipy.optimize.minimize(loss, [0, 0], tol=1e-10).fun + 1e-9


@given(pairs(least=4))
def test_isotonic_agrees_with_scikit_learn(case):
    scores, same = case[0].double().numpy() + 0.0, case[1].numpy()
    theirs = sklearn.isotonic.IsotonicRegression(out_of_bounds="clip").fit(scores, same, balanced(same))
    at = np.linspace(-1.2, 1.2, 50)
    ours = calibrate_scores(*case, "isotonic").probability(torch.from_numpy(at))
    np.testing.assert_allclose(ours, theirs.predict(at).clip(1e-6, 1 - 1e-6), atol=1e-9)


def test_the_true_probabilities_are_found():
    # Scores N(0, 1) and N(2, 1): log-odds 2s − 2.
    same = torch.arange(40_000) % 2 == 0
    scores = torch.randn(40_000) + 2 * same
    fitted = calibrate_scores(scores, same)
    assert (fitted.slope, fitted.offset) == pytest.approx((2, -2), abs=0.1)
    for method in ("logistic", "isotonic"):
        report = calibrate_scores(scores[:20_000], same[:20_000], method).evaluate(scores[20_000:], same[20_000:])
        assert report.ece < 0.02
        assert report.brier == pytest.approx(0.1145, abs=0.01)


def test_a_prior_shifts_the_log_odds():
    fitted = LogisticCalibration(2.0, -1.0)
    scores = torch.tensor([-1.0, 0.3, 2.0])
    p, q = fitted.probability(scores), fitted.probability(scores, prior=0.01)
    torch.testing.assert_close(q / (1 - q), p / (1 - p) / 99)
    with pytest.raises(ValueError, match=r"prior must be between 0 and 1, got 1\.0"):
        fitted.probability(scores, 1.0)


def test_separable_scores_have_a_finite_fit():
    fitted = calibrate_scores(torch.tensor([2.0, 1.9, 0.1, 0.0]), torch.tensor([True, True, False, False]))
    assert math.isfinite(fitted.slope)
    assert 0 < fitted.probability(torch.tensor([0.0])).item() < fitted.probability(torch.tensor([2.0])).item() < 1


@given(pairs(least=4), st.integers(1, 20))
def test_brier_and_log_loss_agree_with_scikit_learn(case, bins):
    same = case[1]
    p = torch.sigmoid(3 * case[0].double())
    report = score_report(p, same, bins)
    weight = balanced(same.numpy())
    assert report.brier == pytest.approx(
        sklearn.metrics.brier_score_loss(same.numpy(), p.numpy(), sample_weight=weight)
    )
    loss = sklearn.metrics.log_loss(same.numpy(), p.numpy(), sample_weight=weight, labels=[False, True])
    assert report.loss == pytest.approx(loss / math.log(2))
    gaps = 0.0
    for k in range(bins):
        inside = (p * bins).floor().clamp_max(bins - 1).numpy() == k
        gaps += abs((weight * (same.numpy() - p.numpy()))[inside].sum())
    assert report.ece == pytest.approx(gaps, abs=1e-12)


@pytest.mark.untyped
def test_refuses():
    scores, same = torch.rand(4), torch.tensor([True, False, True, False])
    with pytest.raises(ValueError, match="method must be 'logistic' or 'isotonic', got 'beta'"):
        calibrate_scores(scores, same, "beta")
    with pytest.raises(ValueError, match="both kinds"):
        calibrate_scores(scores, torch.ones(4).bool())
    with pytest.raises(ValueError, match="probabilities must lie between 0 and 1"):
        score_report(scores + 2, same)
    with pytest.raises(ValueError, match="bins must be an integer ≥ 1"):
        score_report(scores, same, 0)
