import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import distractor_identification, identification
from tests.evaluation.contracts import ReportContract
from tests.evaluation.test_ranking import brute_ranking, galleries


class TestIdentificationReport(ReportContract):
    @pytest.fixture
    def report(self):
        gallery = torch.randn(50, 8)
        return identification(gallery + 0.5 * torch.randn(50, 8), torch.arange(50), gallery, torch.arange(50))


class TestDistractorReport(ReportContract):
    @pytest.fixture
    def report(self):
        return distractor_identification(torch.randn(10, 8), torch.arange(10) // 2, torch.randn(500, 8))

    def test_sizes_are_powers_of_ten_and_all(self, report):
        assert report.sizes == (10, 100, 500)


@given(galleries())
def test_rank_and_cmc_are_those_of_loops(case):
    _probes, _probe_ids, _gallery, gallery_ids = case
    ranks = brute_ranking(*case)[2]
    if 0 in ranks:
        with pytest.raises(ValueError, match=f"got {ranks.count(0)} without; open_set takes those"):
            identification(*case)
        return
    report = identification(*case)
    identities = len(set(gallery_ids.tolist()))
    assert report.identities == identities
    expected = [sum(r <= k for r in ranks) / len(ranks) for k in range(1, identities + 1)]
    assert report.cmc.tolist() == pytest.approx(expected)
    assert [float(report.rank(k)) for k in range(1, identities + 1)] == pytest.approx(expected)
    assert report.cmc[-1] == 1


def brute_distractors(features, ids, distractors, size):
    unit = lambda x: torch.nn.functional.normalize(x.double(), dim=-1)
    ranks = []
    for i in range(len(ids)):
        for j in range(len(ids)):
            if i != j and ids[i] == ids[j]:
                mate = (unit(features[i]) * unit(features[j])).sum().round(decimals=10)
                others = (unit(distractors[:size]) @ unit(features[i])).round(decimals=10)
                ranks.append(1 + int((others >= mate).sum()))
    return ranks


@given(st.data())
def test_distractors_are_counted_as_by_loops(data):
    d, n, m = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 7)), data.draw(st.integers(1, 20))
    entry = st.sampled_from([-1.0, 0.0, 1.0, 2.0])
    features, distractors = (
        torch.tensor(data.draw(st.lists(entry, min_size=k * d, max_size=k * d))).view(k, d) for k in (n, m)
    )
    ids = torch.tensor(
        data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n).filter(lambda v: len(set(v)) < len(v)))
    )
    sizes = sorted({data.draw(st.integers(1, m)), m})
    report = distractor_identification(features, ids, distractors, sizes, chunk=data.draw(st.integers(1, 25)))
    assert [sorted(row) for row in report.ranks.tolist()] == [
        sorted(brute_distractors(features, ids, distractors, s)) for s in sizes
    ]
    ranks = brute_distractors(features, ids, distractors, m)
    assert report.rank(2) == pytest.approx(sum(r <= 2 for r in ranks) / len(ranks))


def test_more_distractors_are_never_easier():
    report = distractor_identification(torch.randn(20, 4), torch.arange(20) // 4, torch.randn(2000, 4))
    rates = [report.rank(1, size) for size in report.sizes]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1]


def test_refuses():
    features, ids, distractors = torch.randn(4, 2), torch.tensor([0, 0, 1, 1]), torch.randn(5, 2)
    for sizes in ([], [0], [6]):
        with pytest.raises(ValueError, match="sizes must be between 1 and the number of distractors 5"):
            distractor_identification(features, ids, distractors, sizes)
    with pytest.raises(ValueError, match="some identity at least twice"):
        distractor_identification(features, torch.arange(4), distractors)
    report = distractor_identification(features, ids, distractors, [5])
    with pytest.raises(ValueError, match=r"size must be one of \(5,\)"):
        report.rank(1, 3)
    with pytest.raises(ValueError, match="k must be an integer ≥ 1"):
        identification(features, torch.arange(4), features, torch.arange(4)).rank(0)
