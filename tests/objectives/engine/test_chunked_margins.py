"""New margins work without changes to the head: norm-dependent, curriculum, learned."""

import pytest
import torch
from torch import nn

from hypersphere import angular
from hypersphere.objectives import MarginSoftmax
from hypersphere.objectives.engine import ScoreFunction
from hypersphere.objectives.engine.chunked import MarginLogits
from hypersphere.objectives.engine.scores import prepare_features
from hypersphere.objectives.margins import AdditiveCosine, Margin
from hypersphere.objectives.margins.margin import EMPTY_CONTEXT
from tests.objectives.contracts import gradients


class QualityMargin(Margin):
    """A margin that grows with the feature norm relative to its running mean."""

    def __init__(self):
        super().__init__()
        self.register_buffer("usual", torch.tensor(1.0))

    def target(self, cos, context=EMPTY_CONTEXT):
        if self.training:
            self.usual.lerp_(context.norms.detach().mean().to(self.usual.dtype), 0.5)
        return context.g(cos) - 0.2 * torch.sigmoid(context.norms - self.usual)


class CurriculumMargin(AdditiveCosine):
    """Classes nearer than the target get a larger weight, with a running factor of the batch and a learned factor."""

    def __init__(self):
        super().__init__(0.3)
        self.register_buffer("pace", torch.tensor(0.0))
        self.strength = nn.Parameter(torch.tensor(0.5))

    def target(self, cos, context=EMPTY_CONTEXT):
        with torch.no_grad():
            self.pace.lerp_(cos.mean().to(self.pace.dtype), 0.5)
        return super().target(cos, context)

    def others(self, cos, context=EMPTY_CONTEXT):
        hard = torch.sigmoid(5 * (cos - context.target))
        return context.g(cos) * (1 + hard * (self.pace + self.strength)) + 0.01 * context.norms


def brute_curriculum(head, x, y, pace):
    losses = []
    w = head.weight.detach()
    for features, label in zip(x, y.tolist(), strict=True):
        cos = (w @ features) / (w.norm(dim=1) * features.norm())
        hard = torch.sigmoid(5 * (cos - cos[label]))
        z = cos * (1 + hard * (pace + head.margin.strength.detach())) + 0.01 * features.norm()
        z[label] = cos[label] - 0.3
        losses.append(nn.functional.cross_entropy(12 * z[None], torch.tensor([label])))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("chunk", [None, 1, 4])
def test_a_curriculum_on_the_other_classes(chunk):
    head = MarginSoftmax(5, 11, margin=CurriculumMargin(), scale=12.0, chunk=chunk).double()
    x, y = torch.randn(7, 5, dtype=torch.float64), torch.randint(0, 11, (7,))
    cos = nn.functional.cosine_similarity(x, head.weight[y])
    loss = head(x, y)
    assert torch.allclose(head.margin.pace, cos.mean() / 2)
    assert torch.allclose(loss, brute_curriculum(head, x, y, cos.mean() / 2))


@pytest.mark.parametrize("margin", [QualityMargin, CurriculumMargin])
@pytest.mark.parametrize(
    "options", [{"scale": 12.0}, {"scale": "feature_norm", "sub_centers": 2}, {"scale": "norms", "bias": True}], ids=str
)
def test_hooks_agree_between_chunks_and_the_dense_path(margin, options):
    x, y = torch.randn(7, 5, dtype=torch.float64), torch.randint(0, 11, (7,))
    results = []
    for chunk in (None, 1, 4, 11):
        torch.manual_seed(3)
        head = MarginSoftmax(5, 11, margin=margin(), label_smoothing=0.1, chunk=chunk, **options).double()
        results.append([*gradients(head, x, y), *head.buffers()])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)


def test_the_backward_pass_uses_the_state_of_its_own_forward_pass():
    x, y = torch.randn(7, 5, dtype=torch.float64), torch.randint(0, 11, (7,))
    results = []
    for chunk in (None, 4):
        torch.manual_seed(3)
        head = MarginSoftmax(5, 11, margin=CurriculumMargin(), scale=12.0, chunk=chunk).double()
        inputs = x.clone().requires_grad_()
        losses = [head(inputs, y), head(-inputs, y)]
        sum(losses).backward()
        results.append((inputs.grad, head.weight.grad, head.margin.strength.grad))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("learnable", ["filter", "layer"])
def test_a_learned_g_gets_its_gradient(learnable):
    x, y = torch.randn(7, 5, dtype=torch.float64), torch.randint(0, 11, (7,))
    head = MarginSoftmax(
        5, 11, angular=angular.Sigmoid(0.4, learnable=learnable), margin=QualityMargin().eval()
    ).double()
    dense = gradients(head, x, y, chunk=None)
    assert len(dense) == 4
    assert (dense[3] != 0).all()
    for a, b in zip(dense, gradients(head, x, y, chunk=4), strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)


def test_gradcheck_through_the_hooks():
    head = MarginSoftmax(3, 5, margin=CurriculumMargin(), angular=angular.Sigmoid(0.5), scale=4.0, chunk=2).double()
    pace = head.margin.pace.clone()
    y = torch.tensor([0, 3, 4])

    def loss(x, weight, strength):
        state = {"weight": weight, "margin.strength": strength, "margin.pace": pace.clone()}
        return torch.func.functional_call(head, state, (x, y))

    inputs = [
        torch.randn(3, 3, dtype=torch.float64),
        head.weight.detach().clone(),
        head.margin.strength.detach().clone(),
    ]
    # The pace follows the batch without a gradient, so it must be constant here.
    head.margin.target = lambda cos, context=EMPTY_CONTEXT: AdditiveCosine.target(head.margin, cos, context)
    assert torch.autograd.gradcheck(loss, [t.requires_grad_() for t in inputs])


def test_the_logits_know_the_parameters_behind_the_hooks():
    x = prepare_features(torch.randn(2, 3), 1.0)
    logits = MarginLogits(ScoreFunction(CurriculumMargin(), angular.Linear(), 4), x, torch.zeros(2))
    assert logits.names == ["margin.strength"]
    assert list(logits.buffers) == ["margin.pace"]
