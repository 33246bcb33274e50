import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.recognition import search


def brute(probes, gallery, k):
    """Cosines with loops, sorted by score down, then by index up."""
    scores, indices = [], []
    for p in probes.double().numpy():
        cos = [
            round(float(p @ g / max(np.linalg.norm(p) * np.linalg.norm(g), 1e-300)), 9)
            for g in gallery.double().numpy()
        ]
        order = sorted(range(len(cos)), key=lambda i: (-cos[i], i))[:k]
        scores.append([cos[i] for i in order])
        indices.append(order)
    return torch.tensor(scores, dtype=torch.float64), torch.tensor(indices)


@given(st.data())
def test_ties_and_duplicates_by_lowest_index_whatever_the_chunk(data):
    # Entries of −1, 0, 1 make duplicates, opposite and zero features common.
    d, p, g = (data.draw(st.integers(1, n)) for n in (3, 4, 150))
    k, chunk = data.draw(st.integers(1, g)), data.draw(st.integers(1, 160))
    entry = st.sampled_from([-1.0, 0.0, 1.0])
    probes, gallery = (
        torch.tensor(data.draw(st.lists(entry, min_size=n * d, max_size=n * d))).view(n, d) for n in (p, g)
    )
    scores, indices = search(probes.double(), gallery.double(), k, chunk=chunk)
    expected_scores, expected = brute(probes, gallery, k)
    assert indices.tolist() == expected.tolist()
    torch.testing.assert_close(scores, expected_scores, atol=1e-9, rtol=0)


@pytest.mark.parametrize("probes", [1, 2, 5])
@pytest.mark.parametrize("chunk", [3, 64, 1000])
def test_copies_come_in_their_order(probes, chunk):
    gallery = torch.randn(1, 33).expand(257, -1).clone()
    gallery[::50] = torch.randn(6, 33)
    query = gallery[1] + 0.1 * torch.randn(probes, 33)
    copies = [i for i in range(257) if i % 50][:20]
    assert search(query, gallery, 20, chunk=chunk)[1].tolist() == [copies] * probes


@pytest.mark.parametrize("chunk", [1, 10, 999, 5000])
def test_random_features(chunk):
    probes, gallery = torch.randn(7, 16), torch.randn(999, 16)
    scores, indices = search(probes, gallery, 10, chunk=chunk)
    expected_scores, expected = brute(probes, gallery, 10)
    assert torch.equal(indices, expected)
    torch.testing.assert_close(scores.double(), expected_scores, atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_galleries_are_scored_in_float32(dtype):
    gallery = torch.randn(100, 32).to(dtype)
    scores, indices = search(gallery[:9], gallery, 3)
    assert scores.dtype == torch.float32
    assert indices[:, 0].tolist() == list(range(9))
    torch.testing.assert_close(scores[:, 0], torch.ones(9))


def test_unit_rows_need_no_division():
    gallery = torch.nn.functional.normalize(torch.randn(50, 8))
    for a, b in zip(search(gallery[:5], gallery, 4, normalized=True), search(gallery[:5], gallery, 4), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("k", [0, 6, -1])
def test_refuses_k(k):
    with pytest.raises(ValueError, match="k must be between 1 and the size of the gallery 5"):
        search(torch.rand(2, 3), torch.rand(5, 3), k)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_refuses_what_is_not_finite(value):
    bad = torch.rand(5, 3)
    bad[4, 1] = value
    with pytest.raises(ValueError, match="probes must be finite"):
        search(bad, torch.rand(5, 3), 1)
    gallery = torch.rand(100, 3)
    gallery[70, 1] = value
    for normalized in (False, True):
        with pytest.raises(ValueError, match="gallery must be finite, got NaN or infinity in rows 64 to 99"):
            search(torch.rand(2, 3), gallery, 1, normalized=normalized, chunk=2)
    with pytest.raises(ValueError, match="chunk must be an integer ≥ 1"):
        search(torch.rand(2, 3), torch.rand(5, 3), 1, chunk=0)
