"""The closed-form loss and gradient of few classes agree with the other paths."""

import pytest
import torch

from hypersphere import angular, objectives
from hypersphere.objectives.comparisons import Binary, CrossEntropy
from hypersphere.objectives.engine import few_classes
from hypersphere.objectives.functional import margin_softmax
from hypersphere.objectives.margins import AdditiveAngle, Combined, Curricular, Misclassified, Multiplicative, TwoSided

PLAIN = [AdditiveAngle(0.4), Multiplicative(3), Combined(1.2, 0.1, 0.05)]
HOOKED = [Curricular(), Misclassified(), TwoSided(0.3)]


def batch(n=6, classes=5, d=4, k=1):
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(rows, d, generator=generator, dtype=torch.float64) for rows in (n, classes * k))
    return x, w, torch.randint(0, classes, (n,), generator=generator)


@pytest.fixture
def by_autograd(monkeypatch):
    """Call a function without the closed form, so that autograd differentiates the hooks."""

    def call(function):
        with monkeypatch.context() as patch:
            patch.setattr(few_classes, "_compute_closed_form", lambda *given: None)
            return function()

    return call


@pytest.mark.parametrize("scale", [9.0, "feature_norm", "norms"])
@pytest.mark.parametrize("margin", PLAIN, ids=lambda m: type(m).__name__)
def test_plain_cosines_agree_with_autograd_through_the_hooks(margin, scale, by_autograd):
    x, w, y = batch()
    for bias in (None, torch.randn(5).double(), torch.tensor([0.2]).double(), torch.tensor(0.2).double()):
        for options in ({}, {"annealing": 0.5}, {"gradient": "detached"}, {"comparison": Binary(0.5, 2.0)}):

            def found(bias=bias, options=options):
                leaves = [t.clone().requires_grad_() for t in (x, w, bias) if t is not None]
                given = {"bias": leaves[2]} if bias is not None else {}
                loss = margin_softmax(*leaves[:2], y, margin=margin, scale=scale, **given, **options)
                return loss, *torch.autograd.grad(loss, leaves)

            for a, b in zip(found(), by_autograd(found), strict=True):
                assert a.shape == b.shape
                assert torch.allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("g", [angular.Cosine(), angular.SquareCosine(), angular.Sigmoid(0.4)], ids=repr)
@pytest.mark.parametrize("margin", HOOKED, ids=lambda m: type(m).__name__)
def test_hooks_on_the_others_agree_with_autograd(margin, g, by_autograd):
    x, w, y = batch(k=2)
    margin.eval()
    for options in ({}, {"gradient": "detached"}, {"comparison": CrossEntropy(0.1)}):

        def found(options=options):
            leaves = [t.clone().requires_grad_() for t in (x, w, torch.tensor(0.1).double())]
            given = {"scale": 7.0, "bias": leaves[2], "angular": g, "sub_centers": 2, "margin": margin}
            loss = margin_softmax(*leaves[:2], y, annealing=0.3, **given, **options)
            return loss, *torch.autograd.grad(loss, leaves)

        for a, b in zip(found(), by_autograd(found), strict=True):
            assert torch.allclose(a, b, rtol=1e-10, atol=1e-10)


def test_statistics_move_once_also_with_a_second_derivative(by_autograd):
    x, _, y = batch()

    def found():
        torch.manual_seed(0)
        head = objectives.CurricularFace(4, 5).double()
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(head(leaf, y), leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), leaf)
        return first, second, head.margin.t

    for a, b in zip(found(), by_autograd(found), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)
    assert found()[2] != 0


def test_backward_twice_and_without_gradients():
    x, w, y = batch()
    leaf = x.requires_grad_()
    loss = margin_softmax(leaf, w, y, margin=AdditiveAngle(0.3))
    first, second = (torch.autograd.grad(loss, leaf, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    with torch.no_grad():
        again = margin_softmax(leaf, w, y, margin=AdditiveAngle(0.3))
    assert not again.requires_grad
    assert torch.equal(again, loss)


def test_a_learned_annealing_and_a_learned_margin_get_their_gradients():
    x, w, y = batch()
    annealing = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda a: margin_softmax(x, w, y, margin=AdditiveAngle(0.3), scale=5.0, annealing=a), annealing
    )
