import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from hypersphere.orthogonal import cayley, finetune, merge, overparameterize, unmerge
from hypersphere.orthogonal.parametrization import (
    RotatedWeight,
    find_parametrization,
    find_rotated,
    require_overparameterized,
    require_rotated,
)
from tests.distributed import run
from tests.orthogonal.contracts import build


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_blocks_are_a_block_diagonal_r_along_the_channels(blocks, share):
    layer, _ = build("conv1d")
    v = layer.weight.detach().clone()
    overparameterize(layer, blocks=blocks, share_blocks=share)
    raw = layer.parametrizations.weight[0].rotation.raw
    assert raw.shape == ((12 // blocks,) * 2 if share or blocks == 1 else (blocks, 12 // blocks, 12 // blocks))
    nn.init.normal_(raw)
    parts = [cayley(raw)] * blocks if raw.ndim == 2 else list(cayley(raw))
    r = torch.block_diag(*parts)
    assert torch.allclose(layer.weight.flatten(1), v.flatten(1) @ r.T, atol=1e-5)
    for channel in range(4):  # only its own block changes a channel
        alone = torch.zeros_like(v)
        alone[:, channel] = v[:, channel]
        moved = layer.parametrizations.weight[0](alone).reshape(5, 4, 3)
        group = slice(channel * blocks // 4 * (4 // blocks), (channel * blocks // 4 + 1) * (4 // blocks))
        moved[:, group] = 0
        assert moved.abs().max() == 0


def test_a_neuron_is_r_times_v():
    layer, _ = build("conv2d grouped")
    v = layer.weight.detach().flatten(1)
    overparameterize(layer, "gram_schmidt")
    r = layer.parametrizations.weight[0].rotation.matrix()
    assert r.shape == (6, 6)  # two channels per group × three taps
    for w, row in zip(layer.weight.flatten(1), v, strict=True):
        assert torch.allclose(w, r @ row, atol=1e-6)


def test_finding_layers():
    net = nn.Sequential(nn.Linear(3, 3), nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), nn.ReLU())
    with pytest.raises(ValueError, match="has no over-parameterized or finetuned layer"):
        require_overparameterized(net)
    overparameterize(net, skip=["1"])
    assert list(require_overparameterized(net)) == ["0"]
    assert [find_parametrization(m) is not None for m in net] == [True, False, False]


def test_pickling_names_what_it_cannot_take():
    layer = overparameterize(nn.Linear(3, 3))
    parametrize.register_parametrization(layer, "bias", nn.Identity())
    with pytest.raises(RuntimeError, match="has others"):
        layer.__reduce_ex__(2)


def test_half_precision_after_the_fact():
    layer, x = build("linear wide")
    overparameterize(layer, "gram_schmidt").bfloat16()
    assert layer.weight.dtype == layer.parametrizations.weight[0].rotation.raw.dtype == torch.bfloat16
    r = layer.parametrizations.weight[0].rotation.matrix()
    assert r.dtype == torch.float32
    assert torch.equal(layer.weight, (layer.parametrizations.weight.original.float() @ r.T).bfloat16())
    assert torch.isfinite(layer(x.bfloat16())).all()


def _worker(rank):
    torch.manual_seed(0)
    net = overparameterize(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)))
    parallel = nn.parallel.DistributedDataParallel(net)
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.Adam(parallel.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        parallel(x[rank::2]).square().mean().backward()
        optimizer.step()
    return net(x).detach()


def test_two_processes_train_as_one():
    torch.manual_seed(0)
    net = overparameterize(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)))
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    first, second = run(_worker)
    assert torch.equal(first, second)
    assert torch.allclose(first, net(x), atol=1e-4)


def test_both_kinds_are_found_by_name():
    net = nn.Sequential(nn.Linear(8, 8), nn.MultiheadAttention(8, 2), nn.Linear(8, 2))
    overparameterize(net, only=["0"])
    finetune(net, block=4, only=["1.*"])
    assert list(find_rotated(net)) == ["0", "1.in_proj_weight", "1.out_proj"]
    assert isinstance(find_parametrization(net[0]), RotatedWeight)
    assert find_parametrization(net[2]) is None
    merge(net)
    assert not find_rotated(net)
    with pytest.raises(ValueError, match="call overparameterize\\(model\\) or finetune\\(model\\) first"):
        require_rotated(net)


def test_a_subclass_must_define_the_effective_weight():
    with pytest.raises(TypeError, match="abstract"):
        RotatedWeight()


def test_pickling_a_finetuned_layer_names_what_it_cannot_take():
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
    with pytest.raises(ValueError, match="nothing to undo"):
        unmerge(layer)
    state = layer.state_dict()
    assert list(merge(layer, keep=True).state_dict()) == list(state)
    merge(layer)
    assert list(layer.state_dict()) == ["weight", "bias"]
