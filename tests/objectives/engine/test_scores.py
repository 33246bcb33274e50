import math

import pytest
import torch

import hypersphere as hs
from hypersphere import angular
from hypersphere.objectives.engine import ScoreFunction
from hypersphere.objectives.engine.problem import is_plain, select_angular
from hypersphere.objectives.engine.scores import (
    MIN_NORM,
    compute_scores,
    prepare_features,
    score_cosines,
)
from hypersphere.objectives.margins import Margin, NoMargin
from hypersphere.objectives.margins.margin import EMPTY_CONTEXT


def test_the_gradient_of_a_short_feature_is_bounded_and_a_longer_one_exact():
    direction = torch.full((1, 4), 0.5, dtype=torch.float64)
    pull = torch.tensor([[1.0, -1.0, 0.0, 0.0]], dtype=torch.float64)
    for length in (1e-30, MIN_NORM / 2, MIN_NORM, 0.01, 3.0):
        x = (length * direction).requires_grad_()
        (prepare_features(x, 2.0).scaled * pull).sum().backward()
        assert torch.allclose(x.grad, 2 * pull / max(length, MIN_NORM))


def test_scales():
    x = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    constant = prepare_features(x, 7.0)
    assert torch.allclose(constant.norms, torch.tensor([5.0, 2.0]))
    assert torch.equal(constant.scale, torch.tensor([7.0, 7.0]))
    assert torch.allclose(constant.scaled, 7 * x / constant.norms[:, None])
    by_norm = prepare_features(x, "feature_norm")
    assert by_norm.scaled is x
    assert torch.equal(by_norm.scale, by_norm.norms)
    assert torch.equal(prepare_features(x, torch.tensor([1.0, 2.0])).scale, torch.tensor([1.0, 2.0]))


def test_the_norm_has_the_right_gradient():
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: prepare_features(x, 1.0).norms, x)


def test_sub_centers_take_the_nearest():
    torch.manual_seed(0)
    weight, x = torch.randn(12, 3), prepare_features(torch.randn(5, 3), 1.0)
    z = compute_scores(ScoreFunction(NoMargin(), angular.Cosine(), 4, 3), weight, None, x, None)
    cos = torch.nn.functional.cosine_similarity(x.directions[:, None], weight, dim=-1)
    assert torch.allclose(z, torch.stack([cos[:, 3 * c : 3 * c + 3].amax(1) for c in range(4)], 1), atol=1e-6)


def test_hooks_see_columns_and_lengths_multiply():
    class Seen(Margin):
        def others(self, cos, context=EMPTY_CONTEXT):
            return context.g(cos) + context.target + context.norms

    scores = ScoreFunction(Seen(), angular.Cosine(), 2, weight_norm=True)
    x = prepare_features(torch.tensor([[0.0, 2.0]]), "norms")
    z = score_cosines(
        scores,
        slice(0, 2),
        torch.tensor([[0.5, 0.25]]),
        torch.tensor([1.0, 3.0]),
        torch.ones(2),
        x,
        torch.tensor([10.0]),
    )
    assert torch.allclose(z, torch.tensor([[2 * 12.5 + 1, 2 * 12.25 * 3 + 1]]))
    assert not is_plain(scores)


def test_plain_means_cosine_and_no_hook():
    assert is_plain(ScoreFunction(NoMargin(), angular.Cosine(), 2))
    assert not is_plain(ScoreFunction(NoMargin(), angular.Linear(), 2))


def test_each_class_has_its_own_g():
    g = angular.Sigmoid(0.5, learnable="filter").for_neurons(3)
    g.log_k.data = torch.tensor([0.1, 0.5, 2.0]).log()
    scores = ScoreFunction(NoMargin(), g, 3)
    cos = torch.tensor([0.3, 0.3])
    assert torch.allclose(
        select_angular(scores, torch.tensor([2, 0]))(cos), torch.stack([angular.Sigmoid(k)(cos[0]) for k in (2.0, 0.1)])
    )
    part = select_angular(scores, slice(1, 3))(cos.expand(4, 2))
    assert torch.allclose(part[:, 1], angular.Sigmoid(2.0)(torch.full((4,), 0.3)))
    assert select_angular(ScoreFunction(NoMargin(), angular.Linear(), 3), slice(None))(torch.zeros(1)).item() == 0
    assert math.isclose(g.k[0].item(), 0.1, rel_tol=1e-6)


def test_products_in_bfloat16():
    x, weight = prepare_features(torch.randn(8, 16), 1.0), torch.randn(4, 16)
    full = compute_scores(ScoreFunction(NoMargin(), angular.Cosine(), 4), weight, None, x, None)
    low = compute_scores(
        ScoreFunction(NoMargin(), angular.Cosine(), 4, matmul_dtype=torch.bfloat16), weight, None, x, None
    )
    assert low.dtype == torch.float32
    assert 0 < (low - full).abs().max() < 0.02


@pytest.mark.parametrize("length", [1e15, 1e17, 1e18])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("m", [1, 4])
def test_at_a_rate_of_ten_a_margin_is_as_robust_as_a_linear_layer(length, momentum, m):
    """L-Softmax stays finite if cross-entropy on a linear layer does with features 2m − 1 times as long."""
    for seed in range(4):
        torch.manual_seed(seed)
        x, labels = torch.randn(16, 4), torch.randint(0, 3, (16,))
        x = (x[:1].repeat(16, 1) if seed % 2 else x) * length
        head, linear = hs.LSoftmax(4, 3, m=m), torch.nn.Linear(4, 3, bias=False)
        linear.load_state_dict({"weight": head.weight.detach()})

        def stays_finite(module, compute_loss):
            optimizer = torch.optim.SGD(module.parameters(), lr=10.0, momentum=momentum)
            for _ in range(12):
                optimizer.zero_grad()
                loss = compute_loss()
                if not loss.isfinite():
                    return False
                loss.backward()
                optimizer.step()
            return bool(module.weight.isfinite().all())

        longer = (2 * m - 1) * x  # the margin can enlarge the target's logit by this factor
        plain = stays_finite(linear, lambda: torch.nn.functional.cross_entropy(linear(longer), labels))  # noqa: B023
        assert stays_finite(head, lambda: head(x, labels)) or not plain  # noqa: B023
