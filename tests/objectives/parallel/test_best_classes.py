import copy

import pytest
import torch
import torch.distributed as dist

from hypersphere.objectives import ArcFace
from hypersphere.objectives.parallel import find_best_classes

pytestmark = pytest.mark.untyped


def ranked(group, head, x):
    head = copy.deepcopy(head).shard(group)
    mine = x[: dist.get_rank(group) + 1]  # a different number on every process
    return head.logits(mine), head.predict(mine), *head.topk(mine, 4)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_logits_and_the_best_classes_of_all_processes(processes, pool):
    head, x = ArcFace(6, 10, bias=True), torch.randn(3, 6)
    torch.nn.init.normal_(head.bias)
    for rank, (logits, predicted, values, classes) in enumerate(pool.run(ranked, head, x, processes=processes)):
        mine = x[: rank + 1]
        assert torch.allclose(logits, head.logits(mine), atol=1e-5)
        assert torch.equal(predicted, head.predict(mine))
        assert torch.equal(classes, head.topk(mine, 4).classes)
        assert torch.allclose(values, head.topk(mine, 4).logits, atol=1e-5)


def test_the_first_of_equal_classes_is_the_best(pool):
    head = ArcFace(4, 6)
    head.weight.data[:] = torch.ones(4)
    for _, predicted, _, _ in pool.run(ranked, head, torch.ones(3, 4), processes=3):
        assert (predicted == 0).all()


def test_fewer_classes_than_asked_for_are_all_there_are():
    assert find_best_classes(torch.tensor([[1.0, 3.0]]), 5, 7).classes.tolist() == [[8, 7]]
    with pytest.raises(ValueError, match=r"k must be an integer in \[1, 3\], got 4"):
        ArcFace(4, 3).topk(torch.ones(1, 4), 4)
