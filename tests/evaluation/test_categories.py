import pytest
import torch

from hypersphere.evaluation.categories import category_rates, check_categories
from hypersphere.evaluation.ranking import rank_probes


def test_a_category_without_both_kinds_of_pairs_has_no_error_rates():
    x, ids = torch.randn(6, 3), torch.tensor([0, 0, 1, 1, 2, 3])
    ranked = rank_probes(x, ids, x, ids, own=torch.arange(len(x)))
    names = ["pairs", "pairs", "pairs", "pairs", "single", "single"]
    both, single = category_rates(x, ids, names, ranked, {0.5: 0.3})
    assert (both.same, both.different, both.probes) == (2, 4, 4)
    assert set(both.far) == {0.5}
    assert (single.same, single.different, single.far, single.rank_1) == (0, 1, {}, None)
    assert [figure.name for figure in single.figures()] == ["single: images"]


def test_a_threshold_that_accepts_nothing_is_left_out():
    x, ids = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    ranked = rank_probes(x, ids, x, ids, own=torch.arange(len(x)))
    (rates,) = category_rates(x, ids, ["a"] * 4, ranked, {0.5: torch.inf})
    assert rates.far == {}


def test_names_are_strings():
    assert check_categories(torch.tensor([1, 2]), 2) == ["1", "2"]
    assert check_categories(("x", "y"), 2) == ["x", "y"]
    with pytest.raises(ValueError, match="one for each of 3 images, got 2"):
        check_categories(["x", "y"], 3)
