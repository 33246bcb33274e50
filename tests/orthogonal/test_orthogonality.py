import math

import pytest
import torch
from torch import nn

from hypersphere.orthogonal import (
    OrthogonalityPenalty,
    SymmetricPositive,
    count_rotation_parameters,
    orthogonality_error,
    overparameterize,
)


def raws(model):
    return [p for name, p in model.named_parameters() if name.endswith("raw")]


class TestError:
    def test_is_the_largest_deviation(self):
        model = overparameterize(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5), nn.Linear(5, 2)), "unconstrained")
        for p in raws(model):
            nn.init.normal_(p)
        expected = {str(i): (p.T @ p - torch.eye(len(p))).abs().max().item() for i, p in enumerate(raws(model))}
        assert orthogonality_error(model, per_layer=True) == pytest.approx(expected, rel=1e-6)
        assert orthogonality_error(model) == pytest.approx(max(expected.values()), rel=1e-6)

    def test_sees_one_entry_of_one_block(self):
        layer = overparameterize(nn.Linear(6, 2), "ogd", blocks=3)
        assert orthogonality_error(layer) == 0
        with torch.no_grad():
            raws(layer)[0][2, 0, 0] += 0.5
        assert orthogonality_error(layer) == pytest.approx(1.25)

    def test_of_a_plain_model(self):
        with pytest.raises(ValueError, match="has no over-parameterized or finetuned layer"):
            orthogonality_error(nn.Linear(2, 2))


class TestCount:
    @pytest.mark.parametrize(
        ("blocks", "shared", "independent"),
        # in thousands, as in the table, which truncates 331,776 to 331.7
        [
            (1, 331.7, 331.7),
            (2, 82.9, 165.9),
            (4, 20.7, 82.9),
            (8, 5.2, 41.5),
            (16, 1.3, 20.7),
            (32, 0.3, 10.4),
            (64, 0.1, 5.2),
        ],
    )
    def test_the_tables_f4_and_f5(self, blocks, shared, independent):
        for share, printed in ((True, shared), (False, independent)):
            layer = overparameterize(nn.Conv2d(64, 64, 3), blocks=blocks, share_blocks=share)
            count = count_rotation_parameters(layer)
            assert count == raws(layer)[0].numel()
            assert abs(count / 1000 - printed) <= 0.1

    def test_by_layer_and_by_freedom(self):
        model = overparameterize(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)), classifier=False, blocks=2)
        assert count_rotation_parameters(model, per_layer=True) == {"0": 8, "1": 18}
        assert count_rotation_parameters(model, freedom=True) == 2 * 1 + 2 * 3
        assert count_rotation_parameters(overparameterize(nn.Linear(5, 2), SymmetricPositive()), freedom=True) == 15


class TestPenalty:
    def test_is_the_frobenius_distance_of_the_whole_r(self):
        for share in (False, True):
            layer = overparameterize(nn.Linear(6, 2), "regularized", blocks=3, share_blocks=share)
            (raw,) = raws(layer)
            nn.init.normal_(raw)
            r = torch.block_diag(*([raw] * 3 if share else raw))
            expected = (r.T @ r - torch.eye(6)).square().sum()
            assert torch.allclose(OrthogonalityPenalty(layer, 0.3)(), 0.3 * expected)

    def test_layers_add_up_and_gradients_flow(self):
        model = overparameterize(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5), nn.Linear(5, 2)), "regularized")
        assert OrthogonalityPenalty(model)() == 0
        for p in raws(model):
            nn.init.normal_(p)
        OrthogonalityPenalty(model)().backward()
        assert all(p.grad.abs().max() > 0 for p in raws(model))

    def test_descending_it_orthogonalizes(self):
        layer = overparameterize(nn.Linear(5, 2), "regularized")
        with torch.no_grad():
            raws(layer)[0].add_(0.3 * torch.randn(5, 5))
        before = orthogonality_error(layer)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.02)
        for _ in range(200):
            optimizer.zero_grad()
            OrthogonalityPenalty(layer)().backward()
            optimizer.step()
        assert before > 0.1
        assert orthogonality_error(layer) < 1e-3

    def test_half_precision_modules(self):
        layer = overparameterize(nn.Linear(5, 2).bfloat16(), "regularized")
        assert OrthogonalityPenalty(layer)().dtype == torch.float32


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
