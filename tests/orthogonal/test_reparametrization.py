import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from hypersphere.orthogonal import finetune, merge, overparameterize, unmerge
from hypersphere.orthogonal.reparametrization import Reparametrization, find, find_all, reparametrized


def test_both_kinds_are_found_by_name():
    net = nn.Sequential(nn.Linear(8, 8), nn.MultiheadAttention(8, 2), nn.Linear(8, 2))
    overparameterize(net, only=["0"])
    finetune(net, block=4, only=["1.*"])
    assert list(find_all(net)) == ["0", "1.in_proj_weight", "1.out_proj"]
    assert isinstance(find(net[0]), Reparametrization)
    assert find(net[2]) is None
    merge(net)
    assert not find_all(net)
    with pytest.raises(ValueError, match="call overparameterize\\(model\\) or finetune\\(model\\) first"):
        reparametrized(net)


def test_a_kind_must_say_what_acts():
    with pytest.raises(TypeError, match="abstract"):
        Reparametrization()


def test_pickling_names_what_it_cannot_take():
    layer = finetune(nn.Linear(8, 40), block=4)
    parametrize.register_parametrization(layer, "bias", nn.Identity())
    with pytest.raises(RuntimeError, match="has others"):
        layer.__reduce_ex__(2)


def test_another_parametrization_on_top_acts_and_blocks_merging():
    class Twice(nn.Module):
        def forward(self, x):
            return 2 * x

    layer, x = nn.Linear(8, 40, bias=False), torch.randn(3, 8)
    y = layer(x)
    finetune(layer, block=4)
    parametrize.register_parametrization(layer, "weight", Twice())
    assert torch.allclose(layer(x), 2 * y)
    with pytest.raises(ValueError, match="another parametrization on top"):
        merge(layer)


def test_merge_and_unmerge_refuse_what_makes_no_sense():
    layer = finetune(nn.Linear(8, 40), block=4)
    with pytest.raises(ValueError, match="not both"):
        merge(layer, keep=True, undo=True)
    with pytest.raises(ValueError, match="nothing to take back"):
        unmerge(layer)
    state = layer.state_dict()
    assert list(merge(layer, keep=True).state_dict()) == list(state)
    merge(layer)
    assert list(layer.state_dict()) == ["weight", "bias"]
