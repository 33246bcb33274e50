import pytest
import torch
from torch import nn

from hypersphere.models.ngpt_layers import StepSize, renormalize_weights, step_towards


def test_a_step_of_zero_stays_and_a_step_of_one_arrives():
    h, proposal = (nn.functional.normalize(x, dim=-1) for x in torch.randn(2, 3, 5))
    assert torch.allclose(step_towards(h, 9 * proposal, 0.0), h)
    assert torch.allclose(step_towards(h, 9 * proposal, 1.0), proposal)
    assert torch.allclose(step_towards(h, 9 * proposal, 0.3).norm(dim=-1), torch.ones(3))


def test_a_step_size_is_never_negative():
    step = StepSize(3, 0.2)
    step.s.data[0] *= -2
    assert torch.allclose(step(), torch.tensor([0.4, 0.2, 0.2]))


@pytest.mark.parametrize("dim", [0, 1])
def test_rows_or_columns(dim):
    layers = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    direction = nn.functional.normalize(layers[0].weight.detach(), dim=1 - dim)
    renormalize_weights(layers, dim)
    assert torch.allclose(layers[0].weight, direction)
    assert torch.equal(layers[1].weight, torch.ones(3))


def test_filters_of_a_convolution_are_rows():
    conv = nn.Conv2d(3, 4, 2)
    renormalize_weights(conv, 0)
    assert torch.allclose(conv.weight.flatten(1).norm(dim=1), torch.ones(4))
