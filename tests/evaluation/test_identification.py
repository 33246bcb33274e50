import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import identification
from tests.evaluation.contracts import ReportContract
from tests.evaluation.test_ranking import brute_ranking, galleries


class TestIdentificationReport(ReportContract):
    @pytest.fixture
    def report(self):
        gallery = torch.randn(50, 8)
        return identification(gallery + 0.5 * torch.randn(50, 8), torch.arange(50), gallery, torch.arange(50))


@given(galleries())
def test_rank_and_cmc_agree_with_loops(case):
    _probes, _probe_ids, _gallery, gallery_ids = case
    ranks = brute_ranking(*case)[2]
    if 0 in ranks:
        with pytest.raises(ValueError, match=f"got {ranks.count(0)} without; use open_set for such probes"):
            identification(*case)
        return
    report = identification(*case)
    identities = len(set(gallery_ids.tolist()))
    assert report.identities == identities
    expected = [sum(r <= k for r in ranks) / len(ranks) for k in range(1, identities + 1)]
    assert report.cmc.tolist() == pytest.approx(expected)
    assert [float(report.rank(k)) for k in range(1, identities + 1)] == pytest.approx(expected)
    assert report.cmc[-1] == 1


def brute_left_out(features, ids):
    """Rank each image with a mate among all other images, with loops: among identities and among images."""
    unit = torch.nn.functional.normalize(features.double(), dim=-1)
    ranks, images = [], []
    for i in range(len(ids)):
        scores = {j: round(float(unit[i] @ unit[j]), 10) for j in range(len(ids)) if j != i}
        mates = [s for j, s in scores.items() if ids[j] == ids[i]]
        if mates:
            best = {}
            for j, s in scores.items():
                if ids[j] != ids[i]:
                    best[int(ids[j])] = max(best.get(int(ids[j]), -2), s)
            ranks.append(1 + sum(s >= max(mates) for s in best.values()))
            images.append(1 + sum(s >= max(mates) for j, s in scores.items() if ids[j] != ids[i]))
    return ranks, images


@given(galleries(), st.integers(1, 5))
def test_without_a_gallery_no_probe_is_compared_with_itself(case, chunk):
    _, _, features, ids = case
    ranks, images = brute_left_out(features, ids)
    if not ranks:
        with pytest.raises(ValueError, match="some identity at least twice"):
            identification(features, ids)
        return
    for report in (
        identification(features, ids, chunk=chunk),
        identification(features, ids, features, ids),
        identification(features, ids, features.view_as(features), ids.clone()),
    ):
        assert report.ranks.tolist() == ranks
        assert report.image_ranks.tolist() == images
        assert report.image_cmc[-1] == 1
        assert report.images == len(ids) - 1


def test_image_level_is_the_cmc_of_re_identification():
    # Two images of one other identity are ranked before the mate: rank 2 of identities, 3 of images.
    gallery = torch.tensor([[1.0, 0.1], [1.0, -0.1], [1.0, 0.5], [-1.0, 0.0]])
    report = identification(torch.tensor([[1.0, 0.0]]), torch.tensor([7]), gallery, torch.tensor([1, 1, 7, 7]))
    assert (report.ranks.tolist(), report.image_ranks.tolist()) == ([2], [3])
    assert (float(report.rank(2)), float(report.rank(2, "image")), float(report.rank(3, "image"))) == (1, 0, 1)
    assert report.cmc.tolist() == [0, 1]
    assert report.image_cmc.tolist() == [0, 0, 1, 1]


def test_a_copy_of_the_probe_is_not_the_probe():
    x = torch.eye(3).repeat(2, 1)
    assert identification(x, torch.arange(3).repeat(2), x.clone(), torch.arange(3).repeat(2)).rank(1) == 1
    assert identification(x, torch.arange(6) // 2).rank(1) == 0  # each copy has another identity


@pytest.mark.untyped
def test_refuses():
    features = torch.randn(4, 2)
    report = identification(features, torch.arange(4) // 2)
    with pytest.raises(ValueError, match="k must be an integer ≥ 1"):
        report.rank(0)
    with pytest.raises(ValueError, match="level must be 'identity' or 'image'"):
        report.rank(1, "face")
    with pytest.raises(ValueError, match="given together or not at all"):
        identification(features, torch.arange(4), features)
    with pytest.raises(ValueError, match="chunk must be an integer ≥ 1"):
        identification(features, torch.arange(4) // 2, chunk=0)
