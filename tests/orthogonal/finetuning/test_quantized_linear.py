import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

from hypersphere.orthogonal import Int4Linear, Int8Linear, TuningMethod, finetune, merge, plan_finetune
from hypersphere.orthogonal.finetuning import quantized_linear
from hypersphere.orthogonal.finetuning.quantized_linear import ADAPTER_CHILD
from tests.orthogonal.finetuning.contracts import shake


def ours():
    torch.manual_seed(0)
    return nn.Sequential(Int8Linear.of(nn.Linear(16, 64)), nn.ReLU(), Int8Linear.of(nn.Linear(64, 8, bias=False)))


def four_bits():
    torch.manual_seed(0)
    return nn.Sequential(Int4Linear.of(nn.Linear(16, 64)), nn.ReLU(), Int4Linear.of(nn.Linear(64, 8, bias=False)))


def dynamic():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that this kind of quantization is deprecated
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


every_base = pytest.mark.parametrize("base", [ours, four_bits, dynamic])
quiet = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@quiet
@every_base
@pytest.mark.parametrize("method", ["oft", "coft", "boft", "hra", "lora", "nora"])
def test_a_quantized_base_is_tuned_by_its_inputs(base, method):
    model, x = base(), torch.randn(5, 16)
    y = model(x)
    assert torch.equal(finetune(model, method, block=4, classifier=False)(x), y)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
    target, losses = torch.randn(5, 8), []
    for _ in range(15):
        optimizer.zero_grad()
        loss = (model(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    tuned = model(x)
    assert torch.equal(copy.deepcopy(model)(x), tuned)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), tuned)
    with pytest.raises(ValueError, match="quantized weight"):
        merge(model)
    assert torch.equal(merge(model, undo=True)(x), y)


@pytest.mark.parametrize("kind", [Int8Linear, Int4Linear])
@pytest.mark.parametrize("numbers", [64, 90])
def test_pieces_make_the_same_product_as_the_whole(kind, numbers, monkeypatch):
    layer = kind.of(nn.Linear(numbers, 50, dtype=torch.float64))
    x = torch.randn(2, 5, numbers, dtype=torch.float64, requires_grad=True)
    decoded = []
    decode = kind.decode
    monkeypatch.setattr(kind, "decode", staticmethod(lambda *args: decoded.append(decode(*args)) or decoded[-1]))
    monkeypatch.setattr(quantized_linear, "MAX_DECODED_NUMBERS", 700)
    g = torch.randn(2, 5, 50, dtype=torch.float64)
    y = layer(x)
    (slope,) = torch.autograd.grad(y, x, g)
    assert len(decoded) >= 10
    assert max(piece.numel() for piece in decoded) <= 700
    whole = torch.cat(decoded[: len(decoded) // 2])
    assert torch.allclose(y, nn.functional.linear(x, whole, layer.bias), atol=1e-12)
    assert torch.allclose(slope, g @ whole, atol=1e-12)


def test_four_bits_round_by_half_a_step_and_take_half_a_byte():
    layer = nn.Linear(100, 8)
    layer.weight.data[3] = 0
    quantized = Int4Linear.of(layer)
    step = quantized.scale.repeat_interleave(64, 1)[:, :100]
    assert ((quantized.dequantize() - layer.weight).abs() <= 0.5001 * step).all()
    assert quantized.weight.dtype == torch.uint8
    assert quantized.weight.shape == (8, 64)


@pytest.mark.parametrize("kind", [Int8Linear, Int4Linear])
def test_gradients_against_the_dequantized_layer(kind):
    layer = kind.of(nn.Linear(16, 64, dtype=torch.float64))
    plain = nn.Linear(16, 64, dtype=torch.float64)
    plain.weight.data, plain.bias.data = layer.dequantize().clone(), layer.bias.data.clone()
    x = torch.randn(5, 16, dtype=torch.float64, requires_grad=True)
    finetune(layer, block=4)
    finetune(plain, block=4)
    plain.parametrizations.weight[0].change.load_state_dict(
        shake(layer).get_submodule(ADAPTER_CHILD).change.state_dict()
    )
    ours = torch.autograd.grad(layer(x).square().sum(), [x, layer.get_submodule(ADAPTER_CHILD).change.inputs.raw])
    theirs = torch.autograd.grad(plain(x).square().sum(), [x, plain.parametrizations.weight[0].change.inputs.raw])
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-10)


def test_rounding_is_half_a_step_at_most():
    layer = nn.Linear(16, 64)
    layer.weight.data[3] = 0
    quantized = Int8Linear.of(layer)
    assert quantized.weight.dtype == torch.int8
    assert ((quantized.dequantize() - layer.weight).abs() <= quantized.scale * 0.5001).all()
    assert quantized.bias.requires_grad


def test_poet_is_left_out_with_its_reason():
    plan = plan_finetune(ours(), TuningMethod("poet", 4), classifier=False)
    assert plan.skipped["0"] == "POET multiplies R into the weight, which a quantized weight does not allow"
    plan = plan_finetune(ours(), TuningMethod("dora"), classifier=False)
    assert plan.skipped["0"].startswith("DoRA divides by the lengths of the changed neurons")


@quiet
def test_no_quantized_layer_is_tuned_twice():
    model = finetune(ours(), block=4)
    with pytest.raises(ValueError, match="has a rotation already"):
        finetune(model, block=4)
