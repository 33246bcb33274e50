import itertools

import pytest
import torch
from torch.nn import functional as F

from hypersphere import objectives
from hypersphere.objectives.engine import problem
from hypersphere.objectives.engine.few_classes import ProductForm, attach_gradient, multiply
from hypersphere.objectives.engine.scores import MAX_NORM, MIN_NORM

KINDS = list(itertools.product([True, False], [True, False], [1, 3]))
HEADS = ["Softmax", "Hinge", "LSoftmax", "WSoftmax", "SSoftmax", "SphereFace", "GASoftmax", "ArcFace", "CosFace"]
HEADS += ["SphereFaceR", "SphereFace2", "AdaFace", "MagFace", "CurricularFace", "MVSoftmax", "UniFace"]


def products(x, w, y, **options):
    how = ProductForm(**options)
    found = multiply(x, w, how)
    return None if found is None else attach_gradient(x, w, y, found, how)


def batch(n=4, classes=3, d=5, k=1):
    x, w = torch.randn(n, d, dtype=torch.float64), torch.randn(classes * k, d, dtype=torch.float64)
    return x.requires_grad_(), w.requires_grad_(), torch.randint(0, classes, (n,))


def written_plainly(x, w, y, by_x, by_weight, k):
    found = (F.normalize(x) if by_x else x) @ (F.normalize(w) if by_weight else w).T
    found = found.unflatten(1, (-1, k)).amax(-1)
    own = found[torch.arange(len(x)), y]
    return found, own, x.norm(dim=1), w.norm(dim=1)


@pytest.mark.parametrize(("by_x", "by_weight", "k"), [kind for kind in KINDS if kind[2] == 1 or kind[1]])
def test_values_and_gradients(by_x, by_weight, k):
    x, w, y = batch(k=k)
    options = {"by_x": by_x, "by_weight": by_weight, "sub_centers": k}
    expected = written_plainly(x, w, y, by_x, by_weight, k)
    for a, b in zip(products(x, w, y, **options), expected, strict=True):
        assert torch.allclose(a, b)

    def loss(x, w):
        found = products(x, w, y, **options)
        return torch.sigmoid(found.others).scatter(1, y[:, None], 0.0), found.own, found.norms, found.lengths

    assert torch.autograd.gradcheck(loss, (x, w))
    assert torch.autograd.gradgradcheck(loss, (x, w))


def test_each_output_has_its_own_gradient_and_what_is_frozen_none():
    x, w, y = batch()
    for i, name in enumerate(("others", "own", "norms", "lengths")):
        plain = written_plainly(x, w, y, True, True, 1)[i]
        plain = plain.scatter(1, y[:, None], 0.0) if name == "others" else plain
        mine = getattr(products(x, w, y), name)
        mine = mine.scatter(1, y[:, None], 0.0) if name == "others" else mine
        for t in (x, w):
            a, b = (torch.autograd.grad(v.sum(), t, retain_graph=True, allow_unused=True)[0] for v in (mine, plain))
            assert torch.allclose(a, torch.zeros_like(t) if b is None else b)
    products(x.detach(), w, y).own.sum().backward()
    assert x.grad is None
    w.grad = None
    products(x, w.detach(), y).own.sum().backward()
    assert w.grad is None


@pytest.mark.parametrize("length", [0.0, MIN_NORM / 2, 2 * MAX_NORM, float("inf"), float("nan")])
def test_unusual_lengths_are_left_to_others(length):
    x, w, y = batch()
    for given in (0, 1):
        inputs = [x.detach().clone(), w.detach().clone()]
        inputs[given][1] = length * F.normalize(inputs[given][1], dim=0)
        assert products(*inputs, y) is None
    assert products(x[:0], w, y[:0]) is None


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("options", [{}, {"gradient": "detached"}, {"sub_centers": 2}], ids=str)
def test_heads_of_few_classes_agree_with_the_dense_path_and_differentiate_twice(name, options):
    kind = getattr(objectives, name)
    if name in ("Softmax", "Hinge", "LSoftmax") and "sub_centers" in options:
        return
    head = kind(5, 7, dtype=torch.float64, **options).double().eval()
    x, y = torch.randn(6, 5, dtype=torch.float64, requires_grad=True), torch.randint(0, 7, (6,))
    found = []
    for chunk in (None, "auto"):
        head.chunk = chunk
        loss = head(x, y)
        first = torch.autograd.grad(loss, (x, head.weight), create_graph=True)
        second = torch.autograd.grad(sum((g * g).sum() for g in first), (x, head.weight))
        found.append((loss, *first, *second))
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def test_auto_takes_the_products_at_once_and_turns_to_care_where_it_must(monkeypatch):
    head, x, y = objectives.ArcFace(5, 7), torch.randn(6, 5), torch.randint(0, 7, (6,))
    node = "_ClosedFormBackward"

    def nodes(loss):
        seen, todo = set(), [loss.grad_fn]
        while todo:
            fn = todo.pop()
            if fn is not None and fn not in seen:
                seen.add(fn)
                todo += [f for f, _ in fn.next_functions]
        return {type(fn).__name__ for fn in seen}

    assert node in nodes(head(x, y))
    assert node not in nodes(head(x.index_fill(0, torch.tensor([2]), 0.0), y))
    monkeypatch.setattr(problem, "MAX_FEW_LOGITS", 41)
    assert node not in nodes(head(x, y))


def test_transforms_of_functions_look_into_the_head():
    head = objectives.CosFace(5, 7).double()
    x, y = torch.randn(6, 5, dtype=torch.float64), torch.randint(0, 7, (6,))
    leaf = x.clone().requires_grad_()
    head(leaf, y).backward()
    assert torch.allclose(torch.func.grad(lambda x: head(x, y))(x), leaf.grad)
    several = torch.func.vmap(lambda x: head(x, y))(torch.stack([x, 2 * x, -x]))
    assert torch.allclose(several[0], head(x, y))
    _, slope = torch.func.jvp(lambda x: head(x, y), (x,), (torch.ones_like(x),))
    assert torch.allclose(slope, leaf.grad.sum())
