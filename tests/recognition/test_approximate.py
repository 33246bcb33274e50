import sys

import pytest
import torch

from hypersphere.recognition import ApproximateIndex, search

faiss = pytest.importorskip("faiss")


def test_all_cells_are_the_exact_search():
    gallery, probes = torch.randn(500, 16), torch.randn(20, 16)
    index = ApproximateIndex(gallery, cells=10, probed=10)
    for a, b in zip(index.search(probes, 5), search(probes, gallery, 5), strict=True):
        torch.testing.assert_close(a, b)


def test_few_cells_find_most():
    centres = torch.randn(50, 32)
    gallery = (centres[:, None] + 0.2 * torch.randn(50, 40, 32)).flatten(0, 1)
    found = ApproximateIndex(gallery, probed=8).search(gallery[::40], 10)[1]
    exact = search(gallery[::40], gallery, 10)[1]
    recall = sum(len(set(a) & set(b)) for a, b in zip(found.tolist(), exact.tolist(), strict=True)) / exact.numel()
    assert recall > 0.9


def test_what_is_not_found_is_marked():
    index = ApproximateIndex(torch.eye(4), cells=4, probed=1)
    scores, found = index.search(torch.eye(4)[:1], 3)
    assert found.tolist() == [[0, -1, -1]]
    assert scores.tolist() == [[1.0, -torch.inf, -torch.inf]]


@pytest.mark.parametrize("options", [{"cells": 0}, {"cells": 9}, {"probed": 0}])
def test_refuses(options):
    with pytest.raises(ValueError, match="cells must be between 1 and 8 and probed ≥ 1"):
        ApproximateIndex(torch.rand(8, 2), **options)


def test_without_faiss_the_install_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"hypersphere\[search\]"):
        ApproximateIndex(torch.rand(8, 2))
