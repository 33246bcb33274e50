import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.recognition import search
from hypersphere.recognition._search import DenseRows, Int8Rows, compute_inner_products, exact_search, largest

search_module = sys.modules["hypersphere.recognition._search"]  # the package's attribute ``search`` is the function


def brute(probes, gallery, k):
    """Compute cosines with loops. Sort by descending score, then by ascending index."""
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
    # Entries of −1, 0, 1 make duplicate, opposite and zero features common.
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


@pytest.mark.parametrize("chunk", [50, 64, 1000])
def test_equal_cosines_whose_products_round_differently_go_by_index(chunk):
    """(−1, 1) and (0, 0) both have cosine 0 with (−1, −1), but a fused multiply-add may give 1e-17 for one of them."""
    rows = torch.tensor([[0.0, 0.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 0.0]], dtype=torch.double)
    gallery = rows[torch.arange(200) * 7 % 5]
    probes = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.double)
    for k in (1, 45, 80, 199):
        assert search(probes, gallery, k, chunk=chunk)[1].tolist() == brute(probes, gallery, k)[1].tolist()


@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_more_near_ties_than_spare_candidates_are_told_apart_in_float64(precision):
    gallery = torch.randn(1, 40) + 1e-6 * torch.randn(3000, 40)
    query = gallery[:3] + 0.5 * torch.randn(3, 40)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        found = search(query, gallery, 5, chunk=700)[1]
    finally:
        torch.set_float32_matmul_precision(before)
    exact = torch.nn.functional.normalize(query.double()) @ torch.nn.functional.normalize(gallery.double()).T
    assert torch.equal(found, exact.round(decimals=12).sort(dim=1, descending=True, stable=True).indices[:, :5])


def test_rows_that_do_not_count_are_never_found():
    gallery, counts = torch.randn(500, 8), torch.rand(500) < 0.1
    scores, found = exact_search(gallery[:50], DenseRows(gallery, valid=counts), 5, chunk=99)
    among = counts.nonzero().squeeze(1)
    expected_scores, expected = search(gallery[:50], gallery[counts], 5)
    assert torch.equal(found, among[expected])
    torch.testing.assert_close(scores.float(), expected_scores)


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
        with pytest.raises(ValueError, match="gallery must be finite, got NaN or infinity in rows 70 to 71"):
            search(torch.rand(2, 3), gallery, 1, normalized=normalized, chunk=2)
    with pytest.raises(ValueError, match="chunk must be an integer ≥ 1"):
        search(torch.rand(2, 3), torch.rand(5, 3), 1, chunk=0)


def divided(group, probes, gallery, k):
    counted, plain = [], search_module.exact_search

    def counting(own, *others):
        counted.append(len(own))
        return plain(own, *others)

    search_module.exact_search = counting
    try:
        return *search(probes, gallery, k, chunk=7, group=group), sum(counted)
    except ValueError as error:
        return str(error)
    finally:
        search_module.exact_search = plain


@pytest.mark.parametrize(("processes", "shares"), [(1, [8]), (2, [4, 4]), (3, [3, 3, 2])])
def test_processes_divide_the_probes(pool, processes, shares):
    generator = torch.Generator().manual_seed(0)
    probes, gallery = (torch.randint(-1, 2, (n, 3), generator=generator).float() for n in (8, 40))  # many ties
    scores, indices = search(probes, gallery, 5)
    found = pool.run(divided, probes, gallery, 5, processes=processes)
    assert [count for _, _, count in found] == shares
    for theirs, places, _ in found:
        assert torch.equal(theirs, scores)
        assert torch.equal(places, indices)


def test_processes_agree_on_few_probes_and_on_errors(pool):
    probes, gallery = torch.eye(3)[:2], torch.eye(3)
    for scores, indices, count in pool.run(divided, probes, gallery, 1, processes=3):
        assert indices.tolist() == [[0], [1]]
        assert scores.tolist() == [[1.0], [1.0]]
        assert count == 2
    bad = torch.eye(3).repeat(2, 1)
    bad[5, 0] = torch.nan
    assert all("probes must be finite" in said for said in pool.run(divided, bad, gallery, 1))
    assert all("gallery must be finite" in said for said in pool.run(divided, torch.eye(3), bad, 1))


@pytest.mark.parametrize("probes", [1, 2, 5, 16, 17])
def test_inner_products_of_few_and_many_probes_with_rows_that_lie_apart(probes):
    records = torch.randn(300, 20)
    rows, found = records[:, 4:], torch.randn(probes, 16)
    assert torch.allclose(compute_inner_products(found, rows), found @ rows.T, atol=1e-5)
    assert compute_inner_products(found, rows).is_contiguous()


@pytest.mark.parametrize("width", [64, 1000, 64 * 40, 64 * 40 + 7])
def test_thelargest_by_way_of_runs_are_those_of_topk(width):
    products = torch.randn(9, width)
    products[0, :] = 0.5  # ties
    products[1, 3:] = -torch.inf
    products[2, -1] = 9.0  # in the remainder after the last full run
    for count in (1, 3, 10):
        values, columns = largest(products, count)
        assert torch.equal(values, products.topk(count).values)
        assert torch.equal(products.gather(1, columns), values)
        assert all(len(set(row)) == count for row in columns.tolist())


@pytest.mark.parametrize("seed", range(3))
def test_int8_rows_give_the_exact_result(seed):
    draw = torch.Generator().manual_seed(seed)
    gallery = torch.randn(3000, 24, generator=draw) * 10 ** torch.randn(3000, 1, generator=draw)
    gallery[100:140] = gallery[99]  # ties, which the quantized codes cannot order
    gallery[200:400] = gallery[200] + 1e-3 * torch.randn(200, 24, generator=draw)
    probes = torch.cat([gallery[[99, 200, 5]], torch.randn(6, 24, generator=draw)])
    wanted, found = (
        exact_search(probes, rows, 30, chunk=700) for rows in (DenseRows(gallery), Int8Rows(gallery, chunk=512))
    )
    assert torch.equal(wanted[1], found[1])
    assert torch.equal(wanted[0], found[0])
    assert torch.equal(search(probes, Int8Rows(gallery), 30)[1], search(probes, gallery, 30)[1])


def test_the_error_of_int8_rows_is_bounded():
    gallery, probes = torch.randn(400, 64), torch.nn.functional.normalize(torch.randn(20, 64))
    rows = Int8Rows(gallery)
    difference = (rows.products(probes, 0, 400) - probes @ torch.nn.functional.normalize(gallery).T).abs().max()
    assert difference <= rows.error(torch.float32)
    assert rows.error(torch.float32) < 0.05
    with pytest.raises(ValueError, match="gallery must be finite and without rows of zeros"):
        Int8Rows(torch.zeros(2, 3))
