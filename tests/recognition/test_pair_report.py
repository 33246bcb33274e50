import pytest
import torch

from hypersphere.evaluation import verification
from hypersphere.recognition import pair_report
from tests.evaluation.contracts import ReportContract


def listed(n=400, folds=None):
    generator = torch.Generator().manual_seed(0)
    same = torch.arange(n) % 2 == 0
    scores = (torch.randn(n, generator=generator) + 1.5 * same) / 10
    return scores, same, torch.arange(2 * n).view(n, 2), None if folds is None else torch.arange(n) * folds // n


class TestPairReport(ReportContract):
    @pytest.fixture
    def report(self):
        scores, same, index, fold = listed(folds=4)
        return pair_report(scores, same, index, fold=fold, fars=(0.1, 0.01))

    def test_is_the_verification_by_folds(self, report):
        scores, same, _, fold = listed(folds=4)
        wanted = verification(scores, same, fold=fold)
        assert report.numbers()["accuracy"] == wanted.accuracy
        assert report.numbers()["threshold@FAR=1e-1"] == wanted.threshold(0.1)
        assert report.numbers()["folds"] == 4

    def test_probabilities_are_fitted_on_the_other_folds(self, report):
        assert report.calibration.slope > 0
        assert int(report.calibrated.counts.sum()) == 200


def test_the_worst_pairs_are_the_most_confident_errors():
    scores, same, index, _ = listed()
    accepts, rejects = pair_report(scores, same, index, worst=5).worst_pairs()
    assert accepts.scores.tolist() == scores[~same].sort(descending=True).values[:5].tolist()
    assert rejects.scores.tolist() == scores[same].sort().values[:5].tolist()
    assert all(not same[i // 2] for i in accepts.first.tolist())
