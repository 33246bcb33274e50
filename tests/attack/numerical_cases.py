"""Extreme numbers: losses, gradients and weights stay finite whenever a linear layer with cross-entropy does."""

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from . import tally as rows
from .tally import Tally

COUNTS = {
    "heads, one step": 3600,
    "heads at a rate of 10": 600,
    "operators": 2000,
    "energies": 1100,
    "angles and norms": 750,
}
LENGTHS = (0.0, 1e-45, 1e-38, 1e-30, 1e-20, 1e-10, 1e-4, 1.0, 1e2, 1e4, 1e6, 1e10, 1e15, 1e18)
GRADIENTS = (0.0, 1e-30, 1e-10, 1.0, 1e4)


def attack(scale: float) -> Iterator[Tally]:
    """Yield a tally for each part."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    works: dict[str, Callable[[random.Random], str]] = {
        "heads, one step": _head,
        "heads at a rate of 10": _trained,
        "operators": _operator,
        "energies": _energy,
        "angles and norms": _geometry,
    }
    for index, (part, work) in enumerate(works.items()):
        if rows.due("numerics", part):
            yield _cases(Tally("numerics", part), round(scale * COUNTS[part]), work, 80 + index)


def _cases(tally: Tally, count: int, work: Callable[[random.Random], str], seed: int) -> Tally:
    for number in range(count):
        draw = random.Random(seed * 1_000_000 + number)
        torch.manual_seed(number)
        try:
            wrong = work(draw)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        tally.check(
            wrong in ("", "floor"),
            f"case {number}: {wrong}",
            "no worse than a linear layer" if wrong == "floor" else "finite",
        )
    return tally


def _features(draw: random.Random, n: int, d: int) -> tuple[Tensor, str]:
    length, kind = draw.choice(LENGTHS), draw.choice(("random", "equal", "opposite", "one axis", "mixed", "zero row"))
    x = torch.randn(n, d)
    if kind == "equal":
        x = x[:1].repeat(n, 1)
    elif kind == "opposite":
        x = x[:1] * (1 - 2 * (torch.arange(n) % 2)).unsqueeze(-1)
    elif kind == "one axis":
        x = torch.zeros(n, d)
        x[:, 0] = 1.0
    elif kind == "mixed":
        x = x * torch.tensor([draw.choice(LENGTHS[:11]) for _ in range(n)]).unsqueeze(-1)
    x = x / x.abs().max().clamp_min(1e-38) * length
    if kind == "zero row":
        x[0] = 0
    return x, f"{kind} features of length {length:g}"


def _heads() -> dict[str, Any]:
    import hypersphere as hs

    names = "Softmax LSoftmax WSoftmax SSoftmax SphereFace GASoftmax CosFace ArcFace AdaCos AdaFace "
    more = "CurricularFace ElasticFace MagFace MVSoftmax SphereFace2 SphereFaceR UniFace"
    return {name: getattr(hs.objectives, name) for name in (names + more).split()}


def _head(draw: random.Random) -> str:
    """Check the loss and gradients of one batch. A failure counts only if a linear layer stays finite on the batch."""
    name, cls = draw.choice(list(_heads().items()))
    d, c, n = draw.choice((2, 3, 16)), draw.choice((2, 5, 40)), draw.choice((1, 4, 16))
    x, what = _features(draw, n, d)
    dtype = draw.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16))
    c = max(c, 3) if name == "AdaCos" else c  # its scale needs three classes
    head = cls(d, c, **({"chunk": 2} if draw.random() < 0.2 else {}))
    length = draw.choice((None, None, 1e-20, 1e-6, 1e6, 1e15))
    with torch.no_grad():
        if length is not None:
            head.weight.copy_(head.weight / head.weight.norm(dim=1, keepdim=True).clamp_min(1e-30) * length)
        if draw.random() < 0.1:
            head.weight[0] = 0
        if draw.random() < 0.2:
            head.weight[0] = x[0].to(head.weight) if x[0].norm() < 1e15 else head.weight[0]
    labels = torch.randint(0, c, (n,))
    wrong = _finite_step(lambda f: head(f, labels), x.to(dtype), list(head.parameters()))
    if wrong and not _linear_holds(x.to(dtype), head.weight, labels):
        return "floor"
    return f"{name}({d}, {c}) of {what}, weights of {length}, {dtype}: {wrong}" if wrong else ""


def _linear_holds(x: Tensor, weight: Tensor, labels: Tensor) -> bool:
    """Return whether cross-entropy on a linear layer with the same weights has a finite loss and finite gradients."""
    linear = nn.Linear(weight.shape[1], len(weight), bias=False)
    with torch.no_grad():
        linear.weight.copy_(weight)
    return not _finite_step(lambda f: nn.functional.cross_entropy(linear(f.float()), labels), x, [linear.weight])


def _finite_step(loss_of: Callable[[Tensor], Tensor], x: Tensor, parameters: list[nn.Parameter]) -> str:
    x = x.detach().clone().requires_grad_()
    loss = loss_of(x)
    if not loss.isfinite().all():
        return f"the loss is {loss.tolist()}"
    found = torch.autograd.grad(loss.sum(), [x, *parameters], allow_unused=True)
    for name, gradient in zip(["features", *(["weights"] * len(parameters))], found, strict=True):
        if gradient is not None and not gradient.isfinite().all():
            return f"the gradient of the {name} is not finite"
    return ""


def _trained(draw: random.Random) -> str:
    """Train Softmax or L-Softmax for 20 steps of SGD at a rate of 10. It must stay finite if a linear layer does.

    For L-Softmax the features of the linear layer are 2m − 1 times as long, because the margin m increases the size of
    the target logit by up to this factor.
    """
    import hypersphere as hs

    name = draw.choice(("Softmax", "LSoftmax", "LSoftmax"))
    d, c, n = draw.choice((2, 8, 32)), draw.choice((2, 10, 50)), draw.choice((8, 32))
    x, what = _features(draw, n, d)
    labels = torch.randint(0, c, (n,))
    m = draw.choice((1, 2, 4))
    momentum = draw.choice((0.0, 0.9))
    head = hs.objectives.Softmax(d, c) if name == "Softmax" else hs.objectives.LSoftmax(d, c, m=m)
    linear = nn.Linear(d, c, bias=False)
    with torch.no_grad():
        linear.weight.copy_(head.weight)
    wrong = _descend(lambda f: head(f, labels), head, x, momentum)
    # The margin increases the size of the target logit and of its gradient by up to this factor.
    longer = (2 * m - 1 if name == "LSoftmax" else 1) * x
    if wrong and _descend(lambda f: nn.functional.cross_entropy(linear(f), labels), linear, longer, momentum):
        return "floor"
    return f"{name}({d}, {c}, m={m}) on {n} {what}, momentum {momentum}: {wrong}" if wrong else ""


def _descend(loss_of: Callable[[Tensor], Tensor], module: nn.Module, x: Tensor, momentum: float) -> str:
    """Train only the weights. With trained features, L-Softmax diverges more often than a linear layer."""
    features = x.clone()
    optimizer = torch.optim.SGD(module.parameters(), lr=10.0, momentum=momentum)
    for step in range(20):
        optimizer.zero_grad()
        loss = loss_of(features)
        if not loss.isfinite():
            return f"the loss is {loss.item()} at step {step}"
        loss.backward()
        optimizer.step()
    good = all(p.isfinite().all() for p in (features, *module.parameters()))
    return "" if good else "weights or features are not finite"


def _operator(draw: random.Random) -> str:
    from hypersphere import angular, operators
    from hypersphere.operators import magnitudes

    kinds = [getattr(magnitudes, name) for name in magnitudes.__all__ if isinstance(getattr(magnitudes, name), type)]
    kind = draw.choice([kind for kind in kinds if kind.__name__ not in ("Magnitude", "CustomMagnitude", "Radius")])
    made = kind()
    g = draw.choice((angular.Cosine, angular.Linear, angular.SquareCosine, angular.Sigmoid))()
    d, c, n = draw.choice((2, 9)), draw.choice((1, 6)), draw.choice((1, 5))
    layer = operators.Linear(d, c, magnitude=made, angular=g)
    x, what = _features(draw, n, d)
    if draw.random() < 0.2:
        with torch.no_grad():
            layer.weight[0] = 0
    wrong = _finite_step(
        lambda f: layer(f).square().clamp_max(1e30).sum() * 1e-30, x.clamp(-1e12, 1e12), list(layer.parameters())
    )
    return f"{kind.__name__} with {type(g).__name__}, {what}: {wrong}" if wrong else ""


def _energy(draw: random.Random) -> str:
    from hypersphere import energy

    n, d = draw.choice((2, 5, 20)), draw.choice((2, 3, 16))
    x, what = _features(draw, n, d)
    s = draw.choice((0, 1, 2))
    half = draw.random() < 0.5
    points = x.clone().requires_grad_()
    value = energy.hyperspherical_energy(points, s=s, half_space=half)
    if value.isnan():
        return f"the energy of {what}, s={s}, half_space={half}, is NaN"
    if not value.isfinite():  # the energy of coinciding points is infinite
        return ""
    (gradient,) = torch.autograd.grad(value, points)
    return "" if gradient.isfinite().all() else f"the gradient of the energy of {what}, s={s}, half_space={half}"


def _geometry(draw: random.Random) -> str:
    from hypersphere import geometry

    n, d = draw.choice((1, 7)), draw.choice((1, 2, 12))
    x, what = _features(draw, n, d)
    x = x.to(draw.choice((torch.float32, torch.float64, torch.bfloat16))).requires_grad_()
    y = torch.randn(n, d).to(x.dtype)
    found = {
        "cosine": geometry.cosine(x, y),
        "norm": geometry.norm(x),
        "normalize": geometry.normalize(x),
        "angle": geometry.angle(x, y),
    }
    for name, value in found.items():
        if not value.isfinite().all():
            return f"{name} of {what} in {x.dtype} is not finite"
        (gradient,) = torch.autograd.grad(value.sum(), x, retain_graph=True)
        # The derivative of x/‖x‖ grows like 1/‖x‖, which overflows float32 for the shortest rows.
        long = x.detach().double().norm(dim=1) > 1e-30
        if gradient.isnan().any() or not gradient[long].isfinite().all():
            return f"the gradient of {name} of {what} in {x.dtype} is not finite"
    return ""
