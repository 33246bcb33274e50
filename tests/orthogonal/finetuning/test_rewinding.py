import pytest
import torch
from torch import nn

from hypersphere.orthogonal import cayley, choose_rewind, finetune, merge, overparameterize, rewind
from tests.orthogonal.finetuning.contracts import shake
from tests.orthogonal.finetuning.test_finetuning_merge import skew


def test_the_generator_is_scaled():
    layer = shake(finetune(nn.Linear(6, 30, dtype=torch.float64), block=6))
    w = layer.parametrizations.weight.original
    a = skew(layer.parametrizations.weight[0].change.inputs.raw[0, 0].detach(), 6)
    assert torch.allclose(rewind(layer, 0.3).weight, w @ cayley(0.3 * a).T, atol=1e-12)


def test_rewinding_scales_the_angle_of_a_pair_of_reflections():
    layer = shake(finetune(nn.Linear(5, 30, dtype=torch.float64), "hra", rank=2))
    turn = layer.parametrizations.weight[0].change.inputs
    whole = turn.matrix()[0]
    rewind(layer, 0.5)
    assert torch.allclose(turn.matrix()[0] @ turn.matrix()[0], whole, atol=1e-12)


def test_the_choice_is_the_smallest_share_within_the_tolerance():
    model = shake(finetune(nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 3)), block=4))
    raw = model[0].parametrizations.weight[0].change.inputs.raw
    learned = raw.detach().clone()
    values = {0.0: 1.0, 0.25: 2.0, 0.5: 2.9, 0.75: 3.0, 1.0: 2.5}

    def evaluate(tuned):
        assert tuned is model
        return values[round(float(raw.norm() / learned.norm()), 2)]

    shares = tuple(values)
    assert choose_rewind(model, evaluate, shares=shares) == 0.75
    assert torch.allclose(raw, 0.75 * learned)
    with torch.no_grad():
        raw.copy_(learned)
    assert choose_rewind(model, evaluate, shares=shares, tolerance=0.2) == 0.5


def test_refuses():
    model = finetune(nn.Linear(8, 40), block=4)
    with pytest.raises(ValueError, match="t must be a number from 0 to 1, got 2"):
        rewind(model, 2)
    with pytest.raises(ValueError, match="shares must be numbers from 0 to 1"):
        choose_rewind(model, lambda _: 0.0, shares=())
    with pytest.raises(ValueError, match="tolerance must be a number ≥ 0"):
        choose_rewind(model, lambda _: 0.0, tolerance=-1)
    with pytest.raises(ValueError, match="merged with keep=True"):
        rewind(merge(model, keep=True), 0.5)
    with pytest.raises(ValueError, match="has no finetuned layer"):
        rewind(overparameterize(nn.Linear(4, 2)), 0.5)
