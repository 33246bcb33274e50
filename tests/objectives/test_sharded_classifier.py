import copy

import pytest
import torch
from torch.distributed.tensor import DTensor

from hypersphere.objectives import ArcFace

pytestmark = pytest.mark.untyped


def whole_again(group, head):
    head = copy.deepcopy(head).shard(group)
    assert isinstance(head.weight, DTensor)
    assert copy.deepcopy(head).shards is head.shards
    divided = head.weight.shape
    head.unshard()
    head.unshard()  # a second call changes nothing
    assert head.shards is None
    return divided, head.state_dict()


@pytest.mark.parametrize("sub_centers", [1, 2])
def test_a_head_is_divided_and_made_whole_again(sub_centers, pool):
    head = ArcFace(5, 7, bias=True, sub_centers=sub_centers)
    for divided, state in pool.run(whole_again, head, processes=3):
        assert divided == ((7, 5) if sub_centers == 1 else (7, 2, 5))
        assert all(torch.equal(state[name], value) for name, value in head.state_dict().items())


def test_a_state_in_shards_form_loads_into_a_whole_head():
    head = ArcFace(5, 7, sub_centers=2)
    state = head.state_dict()
    other = ArcFace(5, 7, sub_centers=2)
    other.load_state_dict(state | {"weight": state["weight"].unflatten(0, (7, 2))})
    assert torch.equal(other.weight, head.weight)
