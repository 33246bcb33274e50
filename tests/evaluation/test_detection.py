import math

import pytest
import torch
from hypothesis import given

from hypersphere.evaluation import open_set
from tests.evaluation.contracts import ReportContract
from tests.evaluation.test_ranking import brute_ranking, galleries


class TestDetectionReport(ReportContract):
    @pytest.fixture
    def report(self):
        gallery = torch.randn(30, 8)
        probes = torch.cat([gallery + 0.3 * torch.randn(30, 8), torch.randn(200, 8)])
        return open_set(probes, torch.arange(230), gallery, torch.arange(30))

    def test_curve_and_rate_agree(self, report):
        curve = report.curve()
        allowed = curve.fpir <= 0.05
        assert report.tpir(0.05) == curve.tpir[allowed].max().item()


@given(galleries())
def test_every_point_of_the_curve_is_that_of_loops(case):
    best, mate, ranks = brute_ranking(*case)
    impostors = [b for b, r in zip(best, ranks, strict=True) if r == 0]
    if not impostors or len(impostors) == len(ranks):
        with pytest.raises(ValueError, match="probes must include mated probes and strangers"):
            open_set(*case)
        return
    report = open_set(*case)
    mated = [(m, r) for m, r in zip(mate, ranks, strict=True) if r]
    for rank in (1, 2, 5):
        curve = report.curve(rank)
        assert curve.thresholds[0] == math.inf
        for t, fpir, tpir in zip(*(column.tolist() for column in curve), strict=True):
            t -= 1e-9
            assert fpir == pytest.approx(sum(b >= t for b in impostors) / len(impostors))
            assert tpir == pytest.approx(sum(m >= t and r <= rank for m, r in mated) / len(mated))


def test_a_wrong_identity_never_counts_as_identified():
    gallery = torch.eye(3)
    report = open_set(torch.tensor([[0.9, 1.0, 0.0], [0.0, 0.0, -1.0]]), torch.tensor([0, 9]), gallery, torch.arange(3))
    assert report.tpir(1.0) == 0
    assert report.tpir(1.0, rank=2) == 1


def test_refuses_rates_that_the_impostors_do_not_resolve():
    gallery = torch.eye(3)
    report = open_set(torch.rand(5, 3), torch.tensor([0, 1, 7, 8, 9]), gallery, torch.arange(3))
    with pytest.raises(ValueError, match=r"fpir=0.1 needs at least 10 strangers to be resolved, got 3"):
        report.tpir(0.1)
    with pytest.raises(ValueError, match="rank must be an integer ≥ 1"):
        report.curve(0)
