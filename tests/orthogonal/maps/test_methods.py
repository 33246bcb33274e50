from typing import get_args

import pytest
import torch

from hypersphere.orthogonal import METHODS, Cayley, GramSchmidt, SymmetricPositive, cayley, gram_schmidt
from hypersphere.orthogonal.maps import as_map
from hypersphere.orthogonal.maps.orthogonal_map import Method


def test_a_name_a_function_a_map_and_a_class_mean_the_same():
    assert isinstance(as_map("gram_schmidt"), GramSchmidt)
    assert isinstance(as_map(gram_schmidt), GramSchmidt)
    assert isinstance(as_map(cayley), Cayley)
    assert isinstance(as_map(SymmetricPositive), SymmetricPositive)
    mine = Cayley(terms=4)
    assert as_map(mine) is not mine
    assert as_map(mine).terms == 4


def test_a_callable_is_taken_as_it_is():
    assert torch.equal(as_map(torch.tril)(torch.ones(3, 3)), torch.ones(3, 3).tril())


def test_each_call_gives_a_fresh_map():
    assert all(make() is not make() for make in METHODS.values())


@pytest.mark.untyped
@pytest.mark.parametrize("wrong", ["caley", 3, None, torch.nn.Linear])
def test_refuses(wrong):
    with pytest.raises(ValueError, match="method must be one of cayley, gram_schmidt"):
        as_map(wrong)


def test_the_annotation_names_the_methods_there_are():
    assert list(get_args(Method)) == list(METHODS)
