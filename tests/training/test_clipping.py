import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hypersphere.objectives import ArcFace
from hypersphere.training.clipping import clip_gradients

pytestmark = pytest.mark.untyped


def net_of(**options):
    torch.manual_seed(2)
    return nn.ModuleDict({"body": nn.Linear(6, 5), "head": ArcFace(5, 11, bias=True, **options)}).double()


def filled(net):
    """The same gradients on every process: numbers that the parameter's place in the whole decides."""
    torch.manual_seed(4)
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.randint(0, 11, (8,))
    group = None if net["head"].shards is None else net["head"].shards.group
    rank, size = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    net["head"](net["body"](x.tensor_split(size)[rank]), y.tensor_split(size)[rank]).backward()
    for parameter in net["body"].parameters():
        if group is not None:
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= size
    return net


def dense(net):
    found = {}
    for name, parameter in net.named_parameters():
        gradient = parameter.grad.to_dense() if parameter.grad.layout == torch.sparse_coo else parameter.grad
        if hasattr(gradient, "full_tensor"):
            gradient = gradient.full_tensor()
        elif hasattr(parameter, "device_mesh"):
            dist.all_reduce(gradient, group=parameter.device_mesh.get_group())
        found[name] = gradient.reshape(-1)
    return found


@pytest.mark.parametrize("limit", [0.01, 1e6])
def test_it_is_torchs_where_that_can_be_used(limit):
    net = filled(net_of())
    other = copy.deepcopy(net)
    for ours, theirs in zip(net.parameters(), other.parameters(), strict=True):
        theirs.grad = ours.grad.clone()
    total = clip_gradients(net.parameters(), limit)
    assert torch.allclose(total, nn.utils.clip_grad_norm_(other.parameters(), limit), rtol=1e-12)
    for ours, theirs in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-12)


def clipped(group, net, limit):
    net, calls, real = copy.deepcopy(net), [], dist.all_reduce
    net["head"].shard(group)
    filled(net)
    dist.all_reduce = lambda tensor, *args, **options: calls.append(tensor.numel()) or real(tensor, *args, **options)
    try:
        total = clip_gradients(net.parameters(), limit)
    finally:
        dist.all_reduce = real
    return total, calls, dense(net)


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"sub_centers": 2}, {"sample": 0.5}], ids=str)
def test_shards_are_clipped_as_the_whole(options, processes, pool):
    net = net_of(**options)
    whole = filled(copy.deepcopy(net))
    total = clip_gradients(whole.parameters(), 0.01)
    assert total > 0.01
    for found, calls, gradients in pool.run(clipped, net, 0.01, processes=processes):
        assert torch.allclose(found, total, rtol=1e-12)
        assert calls == [1]  # one number travels
        for name, expected in dense(whole).items():
            assert torch.allclose(gradients[name], expected, rtol=1e-12, atol=1e-14), name


def test_without_gradients_nothing_happens():
    assert clip_gradients([nn.Parameter(torch.ones(3))], 1.0) == 0


def test_half_precision_does_not_overflow():
    weight = nn.Parameter(torch.zeros(1000, dtype=torch.float16))
    weight.grad = torch.full_like(weight, 1000.0)
    assert clip_gradients([weight], 1.0).item() == pytest.approx(1000 * 1000**0.5, rel=1e-3)
    assert weight.grad.float().norm().item() == pytest.approx(1, rel=1e-2)
