import pytest
import torch

from hypersphere import angular
from hypersphere.objectives.comparisons import Binary, CrossEntropy, MultiClassHinge
from hypersphere.objectives.engine import ClassSubset, GatheredBatch, LossProblem, ScoreFunction
from hypersphere.objectives.engine.few_classes import compute_few_classes
from hypersphere.objectives.functional import margin_softmax
from hypersphere.objectives.margins import AdditiveAngle, InterTopK, MagnitudeAware, Multiplicative, NoMargin

MARGINS = [NoMargin(), AdditiveAngle(0.4), Multiplicative(3), InterTopK(k=2), MagnitudeAware(lower_norm=1.0)]


@pytest.mark.parametrize("margin", MARGINS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("comparison", [CrossEntropy(0.2), Binary(), MultiClassHinge()], ids=str)
def test_every_scale_bias_and_g_agree_with_the_dense_path(margin, comparison):
    x, w = torch.randn(6, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    y, learned = torch.randint(0, 5, (6,)), torch.tensor(7.0, dtype=torch.float64)
    for scale in (9.0, 3, "feature_norm", "norms", learned, torch.rand(6, dtype=torch.float64) + 5):
        for bias in (None, torch.randn(5, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)):
            for g in (angular.Cosine(), angular.Sigmoid(0.4)):
                options = {"margin": margin, "comparison": comparison, "scale": scale, "bias": bias, "angular": g}
                results = []
                for chunk in (None, "auto"):
                    leaves = [t.clone().requires_grad_() for t in (x, w)]
                    loss = margin_softmax(*leaves, y, chunk=chunk, annealing=0.5, **options)
                    results.append((loss, *torch.autograd.grad(loss, leaves)))
                for a, b in zip(*results, strict=True):
                    assert torch.allclose(a, b, rtol=1e-10, atol=1e-10)


def test_a_learned_scale_gets_its_gradient():
    x, w, y = torch.randn(6, 4).double(), torch.randn(5, 4).double(), torch.randint(0, 5, (6,))
    scale = torch.tensor(7.0, dtype=torch.float64, requires_grad=True)
    for margin in (NoMargin(), AdditiveAngle(0.4), InterTopK(k=2)):
        assert torch.autograd.gradcheck(lambda s, m=margin: margin_softmax(x, w, y, scale=s, margin=m), scale)


def test_a_zero_feature_is_left_to_the_other_paths():
    batch = GatheredBatch(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([0]))
    scores = ScoreFunction(NoMargin(), angular.Cosine(), 2)
    labels, subset = torch.tensor([0]), ClassSubset(2, 2)
    problem = LossProblem(batch, None, labels, torch.eye(2), None, scores, CrossEntropy(), 1.0, 0.0, subset)
    assert compute_few_classes(problem) is None
