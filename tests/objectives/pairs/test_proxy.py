import pytest

from hypersphere.objectives import ProxyAnchor
from hypersphere.objectives.pairs import ProxyLoss


def test_is_abstract():
    with pytest.raises(TypeError):
        ProxyLoss(4, 5)


def test_starts_with_rows_of_a_length_near_one():
    lengths = ProxyAnchor(512, 1000).weight.norm(dim=1)
    assert (lengths - 1).abs().max() < 0.2
