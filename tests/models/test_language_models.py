import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hypersphere.models import GPTLanguageModel, NGPTLanguageModel
from hypersphere.models.ngpt_layers import make_rotation, rotate_by_position

KINDS = [GPTLanguageModel, NGPTLanguageModel]


def small(kind, **options):
    torch.manual_seed(0)
    return kind(7, **{"depth": 2, "dim": 8, "heads": 2, **options})


def tokens(batch=3, count=6):
    return torch.randint(7, (batch, count), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
def test_no_position_sees_later_tokens(kind):
    model, first = small(kind).double(), tokens()
    second = first.clone()
    second[:, 3:] = (second[:, 3:] + 1) % 7
    before, after = model(first), model(second)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert (before[:, 3:] - after[:, 3:]).abs().amax((1, 2)).min() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_reaches_every_parameter_and_training_reduces_the_loss(kind):
    model, text = small(kind, dim=16), tokens(8, 12)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(25):
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        if isinstance(model, NGPTLanguageModel):
            model.renormalize_()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("kind", KINDS)
def test_copies_and_pickles(kind):
    model = small(kind)
    out = model(tokens())
    assert torch.equal(copy.deepcopy(model)(tokens()), out)
    assert torch.equal(pickle.loads(pickle.dumps(model))(tokens()), out)


def test_both_have_the_same_weights_to_learn():
    models = [small(kind, dim=32) for kind in KINDS]
    matrices = [sorted(tuple(p.shape) for p in m.parameters() if p.ndim > 1) for m in models]
    assert matrices[0] == matrices[1]
    others = [sum(p.numel() for p in m.parameters() if p.ndim < 2) for m in models]
    assert max(others) < 0.05 * sum(p.numel() for p in models[0].parameters())


def naive_gpt(model, text):
    """The GPT in float64, one sequence, one position and one head at a time."""

    def rms(x, weight):
        return x / (x.square().mean() + torch.finfo(torch.float64).eps).sqrt() * weight

    h = [model.embedding.weight[token] for token in text]
    for block in model.blocks:
        x = [rms(v, block.attention_norm.weight) for v in h]
        heads, size = block.heads, model.head_dim
        out = [torch.zeros(len(h[0]), dtype=torch.float64) for _ in h]
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            q, k, v = ([layer.weight[part] @ y for y in x] for layer in (block.query, block.key, block.value))
            for p in range(len(h)):
                for vectors in (q, k):
                    old = vectors[p].clone()
                    new = old.clone()
                    for i in range(size // 2):
                        angle = torch.tensor(p * 10000 ** (-2 * i / size), dtype=torch.float32).double()
                        a, b = old[i], old[i + size // 2]
                        new[i], new[i + size // 2] = (
                            a * angle.cos() - b * angle.sin(),
                            a * angle.sin() + b * angle.cos(),
                        )
                    vectors[p] = new
            for p in range(len(h)):
                weights = torch.stack([q[p] @ k[t] / size**0.5 for t in range(p + 1)]).softmax(0)
                out[p][part] = sum(w * v[t] for t, w in enumerate(weights))
        h = [old + block.out.weight @ new for old, new in zip(h, out, strict=True)]  # the residual is not normalized
        x = [rms(v, block.mlp_norm.weight) for v in h]
        h = [
            old + block.down.weight @ ((block.up.weight @ y) * F.silu(block.gate.weight @ y))
            for old, y in zip(h, x, strict=True)
        ]
    return torch.stack([model.output.weight @ rms(v, model.norm.weight) for v in h])


def test_the_gpt_is_its_definition():
    model = small(GPTLanguageModel, init_std=0.5).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
        text = tokens(1, 5)
        torch.testing.assert_close(model(text)[0], naive_gpt(model, text[0]), rtol=1e-5, atol=1e-6)


def test_the_gpt_starts_as_gpt_2():
    model = GPTLanguageModel(50, depth=8, dim=64, heads=2)
    block = model.blocks[3]
    assert block.query.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert block.out.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert block.down.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)


def test_states_weights_and_logits_of_ngpt():
    model = small(NGPTLanguageModel)
    assert torch.allclose(model.states(tokens()).norm(dim=-1), torch.ones(3, 6), atol=1e-5)
    cosines = F.normalize(model.states(tokens()), dim=-1) @ F.normalize(model.output.weight, dim=-1).T
    torch.testing.assert_close(model(tokens()), cosines)
    assert torch.allclose(model.output_scale.s, torch.full((7,), 8**-0.5))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
    model.renormalize_()
    for layer in (model.embedding, model.output):
        assert torch.allclose(layer.weight.norm(dim=1), torch.ones(7))


def test_rotations_depend_on_the_distance_only():
    rotation = make_rotation(9, 6).double()
    q, k = (F.normalize(torch.randn(6, dtype=torch.float64), dim=0).expand(1, 1, 9, 6) for _ in range(2))
    turned = rotate_by_position(q, rotation)[0, 0] @ rotate_by_position(k, rotation)[0, 0].T
    for offset in range(-8, 9):
        diagonal = turned.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-6, rtol=0)
    torch.testing.assert_close(turned[0, 0], (q[0, 0, 0] * k[0, 0, 0]).sum())
    torch.testing.assert_close(rotate_by_position(q, rotation).norm(dim=-1), torch.ones(1, 1, 9, dtype=torch.float64))


def test_generation_repeats_what_is_certain():
    model = small(GPTLanguageModel)
    with torch.no_grad():
        model.norm.weight.zero_()  # all scores 0, so tokens are drawn uniformly
    source = torch.Generator().manual_seed(0)
    drawn = model.generate(tokens(200, 3), 4, context=4, generator=source)
    assert torch.equal(drawn[:, :3], tokens(200, 3))
    assert drawn[:, 3:].flatten().bincount(minlength=7).min() > 60
    one = GPTLanguageModel(1, depth=1, dim=4, heads=1)
    assert one.generate(torch.zeros(1, 1, dtype=torch.long), 3, context=2).tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (GPTLanguageModel, {"dim": 12, "heads": 4}, "dim a multiple of 2·heads; got 7, 2, 12, 4"),
        (NGPTLanguageModel, {"depth": 0}, "must be integers ≥ 1"),
        (NGPTLanguageModel, {"step": 0.0}, "initial step α must be a number > 0"),
        (GPTLanguageModel, {"init_std": 0.0}, "init_std must be a number > 0, got 0.0"),
    ],
)
def test_refuses(kind, options, message):
    with pytest.raises(ValueError, match=message):
        small(kind, **options)


def test_an_ngpt_block_takes_a_mask_and_a_rotation():
    block = small(NGPTLanguageModel).blocks[0]
    h = F.normalize(torch.randn(2, 5, 8), dim=-1)
    assert isinstance(block, nn.Module)
    plain, turned = block(h), block(h, rotation=make_rotation(5, 4))
    assert (plain - turned).abs().max() > 1e-3
    order = torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(block(h[:, order]), plain[:, order])  # without positions, attention has no order
