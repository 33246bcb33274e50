import copy
import math
import pickle

import pytest
import torch
from torch import nn

from hypersphere import angular
from hypersphere.neurons import get_change_report
from hypersphere.operators import (
    AttentionScale,
    CosineAttention,
    OperatorLayer,
    convert,
    cosine_attention,
    magnitudes,
    project_weights,
    restore,
)

PLAIN = magnitudes.InnerProduct()


def brute_force(layer, query, key, value, scale, excluded=None):
    """Compute cosine attention with loops in float64, batch first; ``excluded[b][i][j]`` masks a pair."""
    e, h = layer.embed_dim, layer.num_heads
    if layer.in_proj_weight is not None:
        wq, wk, wv = layer.in_proj_weight.double().split(e)
    else:
        wq, wk, wv = (getattr(layer, f"{p}_proj_weight").double() for p in "qkv")
    zero = torch.zeros(3 * e, dtype=torch.float64)
    bq, bk, bv = (zero if layer.in_proj_bias is None else layer.in_proj_bias.double()).split(e)
    out = torch.zeros(*query.shape[:2], e, dtype=torch.float64)
    weights = torch.zeros(len(query), h, query.shape[1], key.shape[1], dtype=torch.float64)
    for b in range(len(query)):
        q, k, v = query[b].double() @ wq.T + bq, key[b].double() @ wk.T + bk, value[b].double() @ wv.T + bv
        for head in range(h):
            part = slice(head * e // h, (head + 1) * e // h)
            for i in range(len(q)):
                scores = []
                for j in range(len(k)):
                    a, c = q[i, part], k[j, part]
                    left_out = excluded is not None and excluded[b][i][j]
                    scores.append(-math.inf if left_out else scale * (a @ c / (a.norm() * c.norm())).item())
                weights[b, head, i] = torch.tensor(scores, dtype=torch.float64).softmax(0)
                out[b, i, part] = weights[b, head, i] @ v[:, part]
    bias = 0 if layer.out_proj.bias is None else layer.out_proj.bias.double()
    return out @ layer.out_proj.weight.double().T + bias, weights


@torch.no_grad()
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 5, "vdim": 3}])
@pytest.mark.parametrize("masked", [False, True])
def test_agrees_with_float64(options, batch_first, masked):
    layer = CosineAttention(8, 2, batch_first=batch_first, magnitude=PLAIN, scale=AttentionScale(3.0), **options)
    for bias in (layer.in_proj_bias, layer.out_proj.bias):
        if bias is not None:
            nn.init.normal_(bias)
    inputs = [torch.randn(2, n, d) for n, d in ((3, 8), (4, options.get("kdim", 8)), (4, options.get("vdim", 8)))]
    masks, excluded = {}, None
    if masked:
        attention, padding = torch.tensor([[0, 1, 0, 0]] * 3).bool(), torch.tensor([[0, 0, 0, 0], [0, 0, 0, 1]]).bool()
        masks, excluded = {"attn_mask": attention, "key_padding_mask": padding}, attention | padding[:, None]
    expected, expected_weights = brute_force(layer, *inputs, 3.0, excluded)
    given = inputs if batch_first else [x.transpose(0, 1) for x in inputs]
    out, weights = layer(*given, average_attn_weights=False, **masks)
    out = out if batch_first else out.transpose(0, 1)
    assert torch.allclose(out.double(), expected, atol=1e-5)
    assert torch.allclose(weights.double(), expected_weights, atol=1e-5)
    assert torch.allclose(layer(*given, **masks)[1].double(), expected_weights.mean(1), atol=1e-5)
    fused, none = layer(*given, need_weights=False, **masks)
    assert none is None
    assert torch.allclose(fused if batch_first else fused.transpose(0, 1), out, atol=1e-5)


def test_the_gradient_is_the_derivative():
    shapes = [(2, 3, 4), (2, 5, 4), (2, 5, 3)]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    scale = torch.rand(2, 1, 1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q, k, v, s: cosine_attention(q, k, v, s)[0], (*inputs, scale))


def test_lengths_of_queries_and_keys_do_not_matter():
    q, k, v = torch.randn(3, 4, 6).unbind()
    out = cosine_attention(q, k, v, 2.0)[0]
    assert torch.allclose(cosine_attention(1e4 * q, 1e-4 * k, v, 2.0)[0], out, atol=1e-5)
    zero = cosine_attention(torch.zeros_like(q), k, v, 2.0)[0]
    assert torch.allclose(zero, v.mean(0).expand_as(v), atol=1e-6)


def like_plain(**options):
    """Return plain and cosine attention with the same weights; all queries and keys have length one."""
    plain = nn.MultiheadAttention(4, 4, batch_first=True, bias=False, **options)  # heads of dimension one: cos θ = ±1
    converted = copy.deepcopy(plain)
    convert(converted, PLAIN, attention=AttentionScale(1.0, learnable=False))
    return plain, converted


@torch.no_grad()
@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}])
@pytest.mark.parametrize("kind", ["bool", "float", "per head", "none"])
def test_masks_and_appended_keys_are_torch_s(options, kind):
    """With equal keys, scores do not matter, only masks and appended keys. So both layers agree."""
    plain, converted = like_plain(**options)
    for layer in (plain, converted):
        layer.in_proj_weight[:8] = 0  # queries and keys are zero
        for bias in (layer.bias_k,):
            if bias is not None:
                bias.zero_()
    if options.get("add_bias_kv"):
        converted.bias_v.copy_(plain.bias_v)
    x, mask = torch.randn(2, 3, 4), torch.tensor([[0, 1, 1], [0, 0, 1], [0, 0, 0]]).bool()
    if kind == "float":
        mask = torch.randn(3, 3)
    elif kind == "per head":
        mask = torch.rand(8, 3, 3) < 0.3
        mask[:, :, 0] = False
    given = {} if kind == "none" else {"attn_mask": mask}
    if kind == "bool":
        given |= {"key_padding_mask": torch.tensor([[0, 0, 1], [0, 0, 0]]).bool()}
    for average in (True, False):
        for a, b in zip(
            plain(x, x, x, average_attn_weights=average, **given),
            converted(x, x, x, average_attn_weights=average, **given),
            strict=True,
        ):
            assert torch.allclose(a, b, atol=1e-6)


def test_a_sequence_without_batch():
    layer, x = CosineAttention(8, 2), torch.randn(5, 8)
    out, weights = layer(x, x, x, key_padding_mask=torch.tensor([0, 0, 0, 0, 1]).bool())
    batch_out, batch_weights = layer(
        x[:, None], x[:, None], x[:, None], key_padding_mask=torch.tensor([[0, 0, 0, 0, 1]]).bool()
    )
    assert torch.equal(out, batch_out[:, 0])
    assert torch.equal(weights, batch_weights[0])
    assert not weights[:, 4].any()


def test_projections_are_operators():
    layer = CosineAttention(8, 2, batch_first=True, magnitude=magnitudes.Ball(), angular=angular.SquareCosine())
    assert isinstance(layer.out_proj, OperatorLayer)
    assert [name for name, _, _ in layer.decoupled_weights()] == ["in_proj_weight"]
    apart = CosineAttention(8, 2, kdim=3, vdim=4)
    assert [name for name, _, _ in apart.decoupled_weights()] == [f"{part}_proj_weight" for part in "qkv"]
    x = torch.randn(2, 5, 8)
    before = apart(x, x[..., :3], x[..., :4])[0]
    project_weights(apart)
    assert torch.allclose(apart(x, x[..., :3], x[..., :4])[0], before, atol=1e-5)
    assert torch.allclose(apart.k_proj_weight.norm(dim=1), torch.ones(8))
    layer(x, x, x)[0].sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())


def test_dropout_in_training_only():
    layer, x = CosineAttention(8, 2, dropout=0.5), torch.randn(5, 3, 8)
    assert not torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])
    layer.eval()
    assert torch.equal(layer(x, x, x)[0], layer(x, x, x)[0])


def test_copies_and_pickles():
    layer, x = CosineAttention(8, 2), torch.randn(5, 3, 8)
    out = layer(x, x, x)[0]
    assert torch.equal(copy.deepcopy(layer)(x, x, x)[0], out)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x, x, x)[0], out)
    other = CosineAttention(8, 2)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x, x, x)[0], out)


def test_autocast_and_double():
    layer, x = CosineAttention(8, 2), torch.randn(5, 3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = layer(x, x, x, need_weights=False)[0]
    assert torch.allclose(low.float(), layer(x, x, x)[0], atol=0.05)
    assert layer.double()(*(x.double(),) * 3)[0].dtype == torch.float64


@pytest.mark.untyped
def test_refuses():
    layer, x = CosineAttention(8, 2), torch.randn(5, 3, 8)
    with pytest.raises(ValueError, match="is_causal is a hint about attn_mask"):
        layer(x, x, x, is_causal=True)
    with pytest.raises(ValueError, match=r"must be boolean or floating-point, got torch\.int64"):
        layer(x, x, x, attn_mask=torch.zeros(5, 5, dtype=torch.long))
    with pytest.raises(ValueError, match="start of an attention's scale must be a number > 0"):
        AttentionScale(0.0)


class TestConversion:
    def test_a_round_trip(self):
        layer, x = nn.MultiheadAttention(8, 2).eval(), torch.randn(5, 3, 8)
        before, state = layer(x, x, x)[0], copy.deepcopy(layer.state_dict())
        kinds = type(layer), type(layer.out_proj)
        report = get_change_report(convert(layer, magnitudes.Ball()))
        assert list(report.changed) == ["", "out_proj"]
        assert "log_scale" in report.new_parameters
        assert set(report.new_parameters) == set(layer.state_dict()) & {n for n, _ in layer.named_parameters()} - set(
            state
        )
        assert not torch.allclose(layer(x, x, x)[0], before, atol=1e-3)
        assert list(get_change_report(restore(layer)).changed) == ["", "out_proj"]
        assert (type(layer), type(layer.out_proj)) == kinds
        assert list(layer.state_dict()) == list(state)
        assert torch.equal(layer(x, x, x)[0], before)

    def test_restoring_attention_restores_its_output(self):
        net = nn.ModuleDict({"a": nn.MultiheadAttention(8, 2)})
        convert(net)
        assert sorted(get_change_report(restore(net, only=["a"])).changed) == ["a", "a.out_proj"]
        assert not any(isinstance(m, OperatorLayer) for m in net.modules())

    def test_a_fixed_scale_adds_nothing_to_the_state(self):
        layer = nn.MultiheadAttention(8, 2)
        names = list(layer.state_dict())
        report = get_change_report(convert(layer, attention=AttentionScale(learnable=False)))
        assert report.new_parameters == []
        assert list(layer.state_dict()) == names

    def test_attention_can_be_left_as_it_is(self):
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        report = get_change_report(convert(layer, attention=None))
        assert sorted(report.changed) == ["linear1", "linear2"]
        assert report.skipped["self_attn"] == "attention is None"
        assert report.skipped["self_attn.out_proj"] == "MultiheadAttention uses its weight without calling it"

    def test_the_output_s_projection_stays_plain_if_so_asked(self):
        layer, x = nn.MultiheadAttention(8, 2), torch.randn(5, 3, 8)
        convert(layer, skip=["out_proj"])
        assert not isinstance(layer.out_proj, OperatorLayer)
        assert torch.isfinite(layer(x, x, x)[0]).all()

    def test_classes_derived_from_torch_s(self):
        class Named(nn.MultiheadAttention):
            pass

        class Own(nn.MultiheadAttention):
            def forward(self, *inputs, **options):
                return super().forward(*inputs, **options)

        net = nn.ModuleDict({"named": Named(8, 2), "own": Own(8, 2)})
        report = get_change_report(convert(net))
        assert sorted(report.changed) == ["named", "named.out_proj"]
        assert report.skipped["own"] == "Own has a forward of its own"
        assert isinstance(net["named"], Named)
        restore(net)
        assert type(net["named"]) is Named

    @pytest.mark.parametrize("norm_first", [True, False])
    def test_the_fused_path_of_evaluation_is_not_taken(self, norm_first):
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0, norm_first=norm_first)
        encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first)
        x, mask = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
        mask[1, 3:] = True
        with torch.no_grad():
            plain = encoder.eval()(x)
        convert(encoder, only=[nn.MultiheadAttention], attention=AttentionScale(5.0))
        training = encoder.train()(x, src_key_padding_mask=mask)
        with torch.no_grad():
            evaluation = encoder.eval()(x, src_key_padding_mask=mask)
        assert torch.allclose(training[~mask], evaluation[~mask], atol=1e-5)
        assert not torch.allclose(evaluation[0], plain[0], atol=1e-3)
        restore(encoder)
        with torch.no_grad():
            assert torch.equal(encoder(x), plain)

    def test_a_whole_transformer_with_its_decoder(self):
        net = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
        report = get_change_report(convert(net))
        assert {name for name in report.changed if name.endswith("attn")} == {
            "encoder.layers.0.self_attn",
            "decoder.layers.0.self_attn",
            "decoder.layers.0.multihead_attn",
        }
        source, target = torch.randn(2, 5, 8), torch.randn(2, 4, 8)
        causal = nn.Transformer.generate_square_subsequent_mask(4)
        out = net(source, target, tgt_mask=causal, tgt_is_causal=True)
        changed = target.clone()
        changed[:, 3] += 1
        assert torch.allclose(net(source, changed, tgt_mask=causal)[:, :3], out[:, :3], atol=1e-5)
