import math

import numpy as np
import pytest
import torch

from hypersphere.angular import Cosine, Sigmoid
from hypersphere.objectives import MarginSoftmax
from hypersphere.objectives.margins import (
    AdditiveAngle,
    AdditiveCosine,
    Context,
    Curricular,
    InterTopK,
    MagnitudeAware,
    Misclassified,
)
from tests.objectives.contracts import HeadContract, MarginContract


class TestCurricular(MarginContract):
    margin = Curricular(AdditiveCosine(0.2)).eval()

    def formula(self, theta):
        return np.cos(theta) - 0.2

    def test_leaves_the_others_alone(self):
        """Only classes that exceed the target's logit change."""
        cos = torch.tensor([[0.1, 0.29, 0.31, 0.9]])
        found = Curricular(AdditiveCosine(0.2)).others(cos, Context(target=torch.tensor([[0.5]])))
        assert torch.allclose(found, torch.tensor([[0.1, 0.29, 0.31**2, 0.81]]))


class TestMisclassified(MarginContract):
    margin = Misclassified(AdditiveAngle(0.3), 1.2)

    def formula(self, theta):
        return np.where(theta + 0.3 <= math.pi, np.cos(theta + 0.3), -np.cos(theta + 0.3) - 2)

    def test_leaves_the_others_alone(self):
        """Only classes that exceed the target's logit change."""
        reached = math.cos(math.acos(0.5) + 0.3)
        cos = torch.tensor([[-0.5, reached - 1e-3, reached + 1e-3]])
        found = self.margin.others(cos, Context(target=torch.tensor([[0.5]])))
        assert torch.allclose(found[0, :2], cos[0, :2])
        assert found[0, 2].item() == pytest.approx(1.2 * (reached + 1e-3) + 0.2, rel=1e-5)


class TestInterTopK(HeadContract):
    scale = 20.0

    def head(self, **options):
        torch.manual_seed(1)
        return MarginSoftmax(5, 11, margin=InterTopK(AdditiveCosine(0.2), k=3, m=0.1), scale=20.0, **options)

    def psi(self, theta):
        return np.cos(theta) - 0.2

    def other_of(self, theta, thetas, label, length):
        nearest = np.sort(np.delete(thetas, label))[:3]
        return np.cos(max(theta - 0.1, 0)) if theta <= nearest[-1] + 1e-12 else np.cos(theta)


@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_more_than_there_are_means_all(chunk):
    head = MarginSoftmax(5, 4, margin=InterTopK(k=9, m=0.1), chunk=chunk, dtype=torch.float64)
    x, y = torch.randn(3, 5, dtype=torch.float64), torch.tensor([0, 1, 3])
    cos = head.logits(x) / 30
    z = torch.cos((cos.acos() - 0.1).clamp_min(0))
    own = torch.cos(cos.gather(1, y[:, None]).acos() + 0.2)
    expected = torch.nn.functional.cross_entropy(30 * z.scatter(1, y[:, None], own), y)
    assert torch.allclose(head(x, y), expected, atol=1e-9)


@pytest.mark.parametrize("angular", [Cosine(), Sigmoid(0.4)], ids=repr)
def test_one_pass_updates_the_running_mean_once(angular):
    """This also holds if only the target has a closed-form slope, as with another angular function."""
    margins = [Curricular(AdditiveCosine(0.2)) for _ in range(2)]
    x, y = torch.randn(6, 5), torch.randint(0, 4, (6,))
    heads = [
        MarginSoftmax(5, 4, margin=m, angular=angular, chunk=c) for m, c in zip(margins, ("auto", None), strict=True)
    ]
    heads[1].weight.data.copy_(heads[0].weight.data)
    for head in heads:
        head(x, y)
    assert torch.allclose(margins[0].t, margins[1].t)


def test_the_inner_margin_keeps_its_penalty_and_its_warning():
    margin = InterTopK(MagnitudeAware())
    context = Context(norms=torch.tensor([20.0]))
    assert margin.penalty(context) == MagnitudeAware().penalty(context)
    with pytest.warns(UserWarning, match="unusually large"):
        MarginSoftmax(5, 4, margin=Misclassified(AdditiveCosine(3.0)))


@pytest.mark.untyped
@pytest.mark.parametrize("options", [{"k": 0}, {"m": -0.1}, {"m": math.nan}, {"m": 4}])
def test_refuses(options):
    with pytest.raises(ValueError, match="must be"):
        InterTopK(**options)
