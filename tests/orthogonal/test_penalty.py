import math

import pytest
import torch
from torch import nn

from hypersphere.orthogonal import OrthogonalityPenalty, overparameterize


def model():
    net = overparameterize(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5), nn.Linear(5, 2)), "regularized")
    for name, p in net.named_parameters():
        if name.endswith("raw"):
            nn.init.normal_(p)
    return net


def test_is_the_weighted_sum_over_layers():
    net = model()
    raws = [p for name, p in net.named_parameters() if name.endswith("raw")]
    expected = sum((p.T @ p - torch.eye(len(p))).square().sum() for p in raws)
    penalty = OrthogonalityPenalty(net, weight=0.25)
    assert torch.allclose(penalty(), 0.25 * expected)
    assert torch.allclose(sum(penalty.terms(torch.zeros(3)).values()), penalty(torch.zeros(3)))
    assert list(penalty.terms()) == ["orthogonality"]
    penalty().backward()
    assert all(p.grad.abs().max() > 0 for p in raws)
    penalty.step()
    assert repr(penalty) == "OrthogonalityPenalty(weight=0.25)"


def test_does_not_own_the_model():
    assert list(OrthogonalityPenalty(model()).parameters()) == []
    assert OrthogonalityPenalty(model()).state_dict() == {}


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_refuses(weight):
    with pytest.raises(ValueError, match="weight must be a finite number ≥ 0"):
        OrthogonalityPenalty(model(), weight)


def test_needs_an_over_parameterized_model():
    with pytest.raises(ValueError, match="has no over-parameterized or finetuned layer"):
        OrthogonalityPenalty(nn.Linear(2, 2))
