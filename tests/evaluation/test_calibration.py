import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import calibration, expected_calibration_error
from tests.evaluation.contracts import ReportContract


class TestCalibrationReport(ReportContract):
    @pytest.fixture
    def report(self):
        return calibration(torch.randn(500, 4).softmax(1), torch.randint(4, (500,)))


@st.composite
def predictions(draw):
    """Draw probabilities in tenths, so that many are on bin edges, for two or three classes."""
    c, n = draw(st.integers(2, 3)), draw(st.integers(1, 30))
    cuts = draw(st.lists(st.lists(st.integers(0, 10), min_size=c - 1, max_size=c - 1), min_size=n, max_size=n))
    rows = [[b - a for a, b in zip([0, *sorted(row)], [*sorted(row), 10], strict=True)] for row in cuts]
    return torch.tensor(rows, dtype=torch.float64) / 10, torch.tensor(
        draw(st.lists(st.integers(0, c - 1), min_size=n, max_size=n))
    )


def brute(p, labels, bins):
    members = {}
    for row, y in zip(p.tolist(), labels.tolist(), strict=True):
        confidence = max(row)
        b = next(b for b in range(bins) if confidence * bins <= b + 1)
        members.setdefault(b, []).append((confidence, row.index(confidence) == y))
    gaps = [(len(m), abs(sum(c for c, _ in m) - sum(r for _, r in m)) / len(m)) for m in members.values()]
    return sum(n * g for n, g in gaps) / len(p), max(g for _, g in gaps)


@given(predictions(), st.sampled_from([1, 2, 5, 10, 15]))
def test_errors_are_those_of_loops(case, bins):
    p, labels = case
    report = calibration(p, labels, bins)
    ece, mce = brute(p, labels, bins)
    assert report.ece == pytest.approx(ece, abs=1e-12)
    assert report.mce == pytest.approx(mce, abs=1e-12)
    assert report.counts.sum() == len(p)
    assert expected_calibration_error(p, labels, bins) == report.ece


@given(predictions())
def test_brier_score_agrees_with_scikit_learn(case):
    p, labels = case
    expected = sklearn.metrics.brier_score_loss(
        labels.numpy(), p.numpy(), labels=range(p.shape[1]), scale_by_half=False
    )
    assert calibration(p, labels).brier == pytest.approx(expected, abs=1e-12)


def test_a_calibrated_forecast_has_a_small_error_and_an_overconfident_one_a_large_error():
    p = torch.rand(200_000) * 0.5 + 0.5
    labels = (torch.rand(200_000) > p).long()
    assert calibration(torch.stack([p, 1 - p], 1), labels).ece < 0.01
    sure = torch.stack([torch.ones_like(p), torch.zeros_like(p)], 1)
    assert calibration(sure, labels).ece == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_softmax_of_any_dtype_is_accepted(dtype):
    assert 0 <= calibration((3 * torch.randn(50, 1000)).to(dtype).softmax(1), torch.randint(1000, (50,))).ece <= 1


def test_refuses():
    p, labels = torch.randn(6, 3).softmax(1), torch.tensor([0, 1, 2, 0, 1, 2])
    for wrong in (torch.randn(6, 3), p * 1.1, torch.full((6, 3), torch.nan)):
        with pytest.raises(ValueError, match="apply a softmax to logits first"):
            calibration(wrong, labels)
    with pytest.raises(ValueError, match="labels must be between 0 and 2, got 0 to 3"):
        calibration(p, labels + (labels == 2))
    for wrong in (labels[:-1], labels.double(), labels[:, None]):
        with pytest.raises(ValueError, match="labels must be an integer for each row"):
            calibration(p, wrong)
    with pytest.raises(ValueError, match="bins must be an integer ≥ 1"):
        calibration(p, labels, 0)
