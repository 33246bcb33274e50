import math
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hypersphere import models
from hypersphere.models import NGPT, NGPTBlock
from hypersphere.orthogonal import finetune, merge

from .contract import ImageContract


class TestNGPT(ImageContract):
    small: ClassVar = {"depth": 2, "dim": 64, "heads": 2, "width": 0.25, "hidden": 2.0, "patch": 4, "input_size": 8}
    feature_dim = 16
    norm = None
    activation = nn.SiLU
    build = staticmethod(models.ngpt)


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def block_in_float64(block, h):
    """Compute one block by the formulas of the paper, token by token and head by head."""
    state = {name: p.detach().double() for name, p in block.named_parameters()}
    dim, heads = h.shape[-1], block.attention.heads
    d = dim // heads

    def linear(name, x):
        return x @ state[f"{name}.linear.weight"].T

    def alpha(name):
        return state[f"{name}.s"].abs() * getattr(block, name).start * math.sqrt(dim)

    q, k, v = (linear(f"attention.{name}", h) for name in ("query", "key", "value"))
    s = state["attention.scale.s"] * math.sqrt(dim)
    mixed = torch.zeros_like(h)
    for b in range(len(h)):
        for i in range(heads):
            part = slice(i * d, (i + 1) * d)
            qi, ki = s[part] * unit(q[b][:, part]), s[part] * unit(k[b][:, part])
            scores = torch.stack([torch.stack([math.sqrt(d) * (a * c).sum() for c in ki]) for a in qi])
            mixed[b][:, part] = (scores.exp() / scores.exp().sum(1, keepdim=True)) @ v[b][:, part]
    h = unit(h + alpha("attention_step") * (unit(linear("attention.out", mixed)) - h))
    u = linear("mlp.up", h) * state["mlp.up_scale"]
    g = linear("mlp.gate", h) * state["mlp.gate_scale"] * math.sqrt(dim)
    return unit(h + alpha("mlp_step") * (unit(linear("mlp.out", u * g / (1 + (-g).exp()))) - h))


def test_a_block_agrees_with_float64():
    block, h = NGPTBlock(12, 3, 20, step=0.3), unit(torch.randn(2, 5, 12))
    with torch.no_grad():
        for name, p in block.named_parameters():
            if "linear" not in name:
                p.mul_(0.5 + torch.rand_like(p))
    assert torch.allclose(block(h).double(), block_in_float64(block, h.double()), atol=1e-5)


def test_a_mask_leaves_tokens_out():
    block, h = NGPTBlock(12, 3, 20), unit(torch.randn(2, 5, 12))
    mask = torch.full((5, 5), -math.inf).triu(1)
    other = h.clone()
    other[:, 4] = unit(torch.randn(2, 12))
    assert torch.allclose(block(h, mask)[:, :4], block(other, mask)[:, :4], atol=1e-6)
    assert torch.allclose(block(h, mask)[:, 3], block(h[:, :4])[:, 3], atol=1e-6)


def small(**options):
    return NGPT(3, **{"depth": 2, "dim": 16, "heads": 2, "patch": 4, "input_size": 8, **options})


def lengths(net):
    """Return the lengths of all weight vectors that must be on the sphere."""
    yield net.patches.conv.weight.flatten(1).norm(dim=1)
    yield net.positions.norm(dim=1)
    for block in net.blocks:
        for layer in (block.attention.query, block.attention.key, block.attention.value, block.mlp.up, block.mlp.gate):
            yield layer.linear.weight.norm(dim=1)
        for layer in (block.attention.out, block.mlp.out):
            yield layer.linear.weight.norm(dim=0)


def test_states_and_weights_stay_on_the_sphere():
    net, x, y = small(), torch.randn(12, 3, 8, 8), torch.arange(12) % 3
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for _ in range(20):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert any((length - 1).abs().max() > 1e-4 for length in lengths(net))
        net.renormalize_()
        assert all(torch.allclose(length, torch.ones_like(length), atol=1e-5) for length in lengths(net))
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert torch.allclose(net.states(x).norm(dim=-1), torch.ones(12, 4), atol=1e-5)
    assert torch.allclose(net.features(x).norm(dim=-1), torch.full((12,), 4.0), atol=1e-4)


def test_renormalizing_again_changes_nothing():
    net = small()
    before = [p.detach().clone() for p in net.parameters()]
    net.renormalize_()
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(net.parameters(), before, strict=True))


def test_the_step_size_at_the_start():
    assert torch.allclose(small(depth=4).blocks[0].mlp_step(), torch.full((16,), 0.25))
    assert torch.allclose(small(step=0.1).blocks[0].attention_step(), torch.full((16,), 0.1))
    assert torch.allclose(NGPTBlock(8, 2, 8).mlp_step(), torch.full((8,), 0.05))


def test_a_map_that_is_not_square():
    net = small(input_size=(8, 12))
    assert net.states(torch.zeros(2, 3, 8, 12)).shape == (2, 6, 16)
    with pytest.raises(ValueError, match=r"images must have shape \(3, 8, 12\)"):
        net(torch.zeros(2, 3, 12, 8))


def test_a_computed_weight_cannot_be_renormalized():
    net = small()
    nn.utils.parametrizations.orthogonal(net.blocks[0].mlp.up.linear)
    with pytest.raises(ValueError, match="renormalize_ needs weights that are parameters"):
        net.renormalize_()


def test_fine_tuned_by_rotations_it_stays_frozen_and_can_be_merged():
    net, x = small(hidden=2.0), torch.randn(4, 3, 8, 8)
    base = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    finetune(net, block=8, only=[nn.Linear], classifier="classifier")
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(x), torch.arange(4) % 3).backward()
        optimizer.step()
        net.renormalize_()
    tuned = net(x).detach()
    for _, layer in zip(range(2), net.blocks[0].attention.list_directions(), strict=False):
        weight = next(m.weight for m in layer[0].modules() if isinstance(m, nn.Linear))
        assert torch.allclose(weight.norm(dim=1), torch.ones(len(weight)), atol=1e-5)
    merge(net, undo=True)
    inner = [name for name in base if "blocks" in name]
    assert all(torch.equal(net.state_dict()[name], base[name]) for name in inner)
    assert not torch.allclose(net(x), tuned, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch": 3}, "patch must be an integer ≥ 1 that divides"),
        ({"heads": 3}, "heads a divisor of dim"),
        ({"depth": 0}, "depth, dim and heads must be integers ≥ 1"),
        ({"step": 0.0}, "initial step α must be a number > 0"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options)
