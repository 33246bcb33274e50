import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation.ranking import QueryGallery, count_compared_pairs, make_masks, rank_probes


@st.composite
def galleries(draw):
    """Coarse features, so that equal and opposite directions are common; identities 0–4, some without a mate."""
    d, p, g = draw(st.integers(1, 3)), draw(st.integers(1, 8)), draw(st.integers(1, 12))
    entry = st.sampled_from([-1.0, 0.0, 1.0, 2.0])
    features = [torch.tensor(draw(st.lists(entry, min_size=n * d, max_size=n * d))).view(n, d) for n in (p, g)]
    ids = [torch.tensor(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))) for n in (p, g)]
    return features[0], ids[0], features[1], ids[1]


def brute_ranking(probes, probe_ids, gallery, gallery_ids):
    """Rank with loops over probes and templates; scores are rounded so that equal directions are equal."""
    best, mate, ranks = [], [], []
    for p, i in zip(probes.double(), probe_ids.tolist(), strict=True):
        of_identity = {}
        for g, j in zip(gallery.double(), gallery_ids.tolist(), strict=True):
            cos = (p @ g / (p.norm() * g.norm()).clamp_min(1e-300)).item()
            of_identity[j] = max(of_identity.get(j, -2), round(cos, 10))
        best.append(max(of_identity.values()))
        mate.append(of_identity.get(i, -torch.inf))
        ranks.append(1 + sum(s >= of_identity[i] for j, s in of_identity.items() if j != i) if i in of_identity else 0)
    return best, mate, ranks


@given(galleries(), st.integers(1, 10))
def test_ranks_agree_with_loops(case, chunk):
    result = rank_probes(*case, chunk)
    best, mate, ranks = brute_ranking(*case)
    assert result.rank.tolist() == ranks
    torch.testing.assert_close(result.best, torch.tensor(best, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(result.mate, torch.tensor(mate, dtype=torch.float64), atol=1e-9, rtol=0)


@given(galleries(), st.integers(1, 10))
def test_first_has_the_best_score_and_loses_ties(case, chunk):
    result = rank_probes(*case, chunk)
    probes, probe_ids, gallery, gallery_ids = case
    for i, (probe, own) in enumerate(zip(probes, probe_ids.tolist(), strict=True)):
        best, _, ranks = brute_ranking(probe[None], probe_ids[i : i + 1], gallery, gallery_ids)
        assert (result.first[i].item() == own) == (ranks[0] == 1)
        mine = gallery_ids == result.first[i]
        assert brute_ranking(probe[None], probe_ids[i : i + 1], gallery[mine], gallery_ids[mine])[0][0] == best[0]


@given(galleries(), st.randoms(use_true_random=False))
def test_the_order_of_gallery_and_probes_has_no_effect(case, random):
    probes, probe_ids, gallery, gallery_ids = case
    rows, columns = list(range(len(probes))), list(range(len(gallery)))
    random.shuffle(rows)
    random.shuffle(columns)
    again = rank_probes(probes[rows], probe_ids[rows], gallery[columns], gallery_ids[columns])
    assert torch.equal(again.rank, rank_probes(*case).rank[rows])
    assert torch.equal(again.image_rank, rank_probes(*case).image_rank[rows])


def test_a_copy_under_another_name_counts_against_the_probe():
    x = torch.randn(1, 64)
    gallery = torch.cat([torch.randn(100, 64), x, torch.randn(50, 64), x])
    assert rank_probes(x, torch.tensor([100]), gallery, torch.arange(152)).rank.tolist() == [2]


@pytest.mark.parametrize("ids", [torch.rand(3), torch.arange(2), torch.arange(3)[:, None]])
def test_refuses_ids(ids):
    with pytest.raises(ValueError, match="probe_ids must be integers, one for each of 3"):
        rank_probes(torch.rand(3, 2), ids, torch.rand(3, 2), torch.arange(3))


def test_refuses_nonfinite_features():
    bad = torch.tensor([[torch.nan, 1.0]])
    with pytest.raises(ValueError, match="gallery must be finite"):
        rank_probes(torch.rand(1, 2), torch.tensor([0]), bad, torch.tensor([0]))
    with pytest.raises(ValueError, match="probes must be finite"):
        rank_probes(bad, torch.tensor([0]), torch.rand(1, 2), torch.tensor([0]))


def test_strided_views_give_the_same_ranks():
    x, ids = torch.randn(20, 6), torch.arange(20)
    views = rank_probes(x[::2, ::2], ids[::2], x[:, ::2], ids)
    copies = rank_probes(x[::2, ::2].clone(), ids[::2].clone(), x[:, ::2].clone(), ids)
    assert all(torch.equal(a, b) for a, b in zip(views, copies, strict=True))


def test_counts_agree_with_loops_over_pairs():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (25,), generator=generator)
    masks = QueryGallery(torch.rand(25, generator=generator) < 0.5, torch.rand(25, generator=generator) < 0.6)
    same = different = 0
    for i, j in itertools.combinations(range(25), 2):
        if (masks.queries[i] and masks.gallery[j]) or (masks.queries[j] and masks.gallery[i]):
            assert masks.are_compared(i, j)
            same, different = same + int(labels[i] == labels[j]), different + int(labels[i] != labels[j])
        else:
            assert not masks.are_compared(i, j)
    assert count_compared_pairs(masks, labels) == (same, different)


def test_by_default_all_images_are_compared():
    masks = make_masks(None, None, torch.arange(4))
    assert masks.queries.all()
    assert masks.gallery.all()
    assert count_compared_pairs(masks, torch.tensor([0, 0, 1, 1])) == (2, 4)


def test_refuses():
    mask = torch.ones(3, dtype=torch.bool)
    with pytest.raises(ValueError, match="queries and gallery must be given together"):
        make_masks(mask, None, torch.arange(3))
    with pytest.raises(ValueError, match="gallery must be a boolean for each of 3 images"):
        make_masks(mask, mask & False, torch.arange(3))
