import copy
import warnings

import pytest
import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from hypersphere.objectives import ArcFace, RowSGD, Sample, SphereFace2
from hypersphere.objectives.parallel import (
    find_sharded_parameters,
    fit_state,
    gather_state_dict,
    gather_tree,
    ignore_shards,
)
from hypersphere.objectives.parallel.storage import choose_device

pytestmark = pytest.mark.untyped
on_cpu = pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="fully_shard of PyTorch 2.6 needs a GPU")


class Net(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.body = nn.Linear(6, 5)
        self.head = ArcFace(5, 11, bias=True, **options)

    def forward(self, x, y):
        return self.head(self.body(x), y)


def trained(group, net, batches, wrapper, steps, kind):
    """Return the whole state after some steps on these processes."""
    net = copy.deepcopy(net)
    net.head.shard(group)
    if wrapper == "ddp":
        wrapped = DistributedDataParallel(ignore_shards(net), process_group=group)
    else:
        mesh = net.head.shards.mesh
        fully_shard(net.body, mesh=mesh)
        wrapped = torch.compile(net, backend="eager") if wrapper == "compiled" else net
    optimizer = kind(net)
    x, y = batches[dist.get_rank(group)]
    for _ in range(steps):
        optimizer.zero_grad()
        wrapped(x, y).backward()
        optimizer.step()
        net.head.step()
    return gather_state_dict(net)


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def row_sgd(net):
    return RowSGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


@pytest.mark.parametrize(
    ("wrapper", "kind", "options"),
    [
        ("ddp", sgd, {}),
        pytest.param("fsdp", sgd, {"sub_centers": 2}, marks=on_cpu),
        ("ddp", row_sgd, {"sample": Sample(0.5, unbiased=True)}),
        pytest.param("compiled", row_sgd, {"sample": 0.3, "sub_centers": 2}, marks=[pytest.mark.slow, on_cpu]),
    ],
)
def test_a_network_learns_as_on_one_process(wrapper, kind, options, pool):
    net = Net(**options).double()
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.randint(0, 11, (8,))
    # Both wrappers give all processes the same weight, so each must have the same number of samples.
    parts = pool.run(trained, net, list(zip(x.split(4), y.split(4), strict=True)), wrapper, 4, kind, processes=2)
    optimizer = kind(net)
    for _ in range(4):
        optimizer.zero_grad()
        net(x, y).backward()
        optimizer.step()
        net.head.step()
    for part in parts:
        for name, expected in net.state_dict().items():
            assert torch.allclose(part[name], expected, rtol=1e-10, atol=1e-12), name


def saved(group, net, folder, steps):
    net = copy.deepcopy(net)
    net.head.shard(group)
    optimizer = row_sgd(net)
    advance(net, optimizer, steps)
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"net": net.state_dict()}, checkpoint_id=folder, process_group=group)
    return gather_tree(state)


def advance(net, optimizer, steps):
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        x = torch.randn(6, 6, generator=generator, dtype=torch.float64)
        y = torch.randint(0, 11, (6,), generator=generator)
        rank, size = (0, 1) if net.head.shards is None else (net.head.shards.rank, net.head.shards.processes)
        optimizer.zero_grad()
        net(x.chunk(size)[rank], y.chunk(size)[rank]).backward()
        for p in net.body.parameters():
            if size > 1:
                dist.all_reduce(p.grad, group=net.head.shards.group)
                p.grad /= size
        optimizer.step()
        net.head.step()


def gone_on(group, net, folder, state, steps):
    """Resume from a checkpoint of other processes, by torch's reader and by whole tensors; both must agree."""
    read = copy.deepcopy(net)
    read.head.shard(group)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load({"net": (target := read.state_dict())}, checkpoint_id=folder, process_group=group)
    read.load_state_dict(target)
    net = copy.deepcopy(net)
    net.head.shard(group)
    net.load_state_dict(state["net"])
    same = all(
        torch.equal(a, b)
        for a, b in zip(gather_state_dict(read).values(), gather_state_dict(net).values(), strict=True)
    )
    optimizer = row_sgd(net)
    optimizer.load_state_dict(state["optimizer"])
    fit_state(optimizer)
    advance(net, optimizer, steps)
    return same, gather_tree({"net": net.state_dict(), "optimizer": optimizer.state_dict()})


@pytest.mark.parametrize("sub_centers", [1, 3])
def test_a_run_goes_on_with_another_number_of_processes(sub_centers, pool, tmp_path):
    net = Net(sub_centers=sub_centers, sample=0.5).double()
    straight = copy.deepcopy(net)
    advance(straight, row_sgd(straight), 3)  # the same three batches each time
    one, parts = copy.deepcopy(net), pool.run(saved, net, str(tmp_path), 3, processes=3)
    for name, expected in straight.state_dict().items():
        found = parts[0]["net"][name].reshape(expected.shape)
        assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12), name
    for same, found in pool.run(gone_on, net, str(tmp_path), parts[0], 3, processes=2):
        assert same
        two = found
    # resume on one process, without torch.distributed
    for source in (parts[0], two):
        one = copy.deepcopy(net)
        one.load_state_dict(source["net"])
        optimizer = row_sgd(one)
        optimizer.load_state_dict(source["optimizer"])
        fit_state(optimizer)
        advance(one, optimizer, 3)
        if source is parts[0]:
            for name, expected in one.state_dict().items():
                assert torch.allclose(two["net"][name].reshape(expected.shape), expected, rtol=1e-10, atol=1e-12), name


def exported(group, head, path):
    head = copy.deepcopy(head).shard(group)
    assert isinstance(head.weight, DTensor)
    assert len(find_sharded_parameters(head)) == (1 if head.bias.ndim == 0 else 2)
    state = gather_state_dict(head)
    if dist.get_rank(group) == 0:
        safetensors.torch.save_file(state, path)
    with pytest.raises(ValueError, match="already divided"):
        head.shard(group)
    return repr(head)


def test_the_whole_head_is_exported_and_read_again(pool, tmp_path):
    head = SphereFace2(5, 11, sub_centers=2)
    pool.run(exported, head, str(tmp_path / "head.safetensors"), processes=3)
    again = SphereFace2(5, 11, sub_centers=2)
    again.load_state_dict(safetensors.torch.load_file(tmp_path / "head.safetensors"))
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), head.state_dict().values(), strict=True))


def made_here(group, seed):
    torch.manual_seed(seed)
    head = ArcFace(5, 11, bias=True, device="meta").shard(group)
    assert head(torch.ones(1, 5), torch.tensor([3])).isfinite()
    return head.weight.full_tensor().detach()


def test_a_head_on_meta_gets_its_own_classes_only(pool):
    for whole_weight in (found := pool.run(made_here, 0, processes=3)):
        assert torch.equal(whole_weight, found[0])
        assert len(whole_weight.unique(dim=0)) == 11
        assert whole_weight.abs().max() < 10


def on_mesh(group):
    mesh = dist.device_mesh.DeviceMesh.from_group(group, "cpu")
    head = ArcFace(5, 11, device="meta").shard(mesh)
    return choose_device(mesh), choose_device(group), str(head.weight.device)


def test_a_head_on_meta_is_made_where_its_processes_talk(pool, monkeypatch):
    assert pool.run(on_mesh, processes=2) == [("cpu", "cpu", "cpu")] * 2
    for config, home in (("cuda:nccl", "cuda"), ("cpu:gloo,cuda:nccl", "cpu"), ("xpu:xccl", "xpu")):
        monkeypatch.setattr(dist, "get_backend_config", lambda group, config=config: config)
        assert choose_device(None) == home


def test_without_processes_it_says_what_to_do():
    with pytest.raises(ValueError, match="torchrun"):
        ArcFace(5, 11).shard()
