"""The limit s → ∞ of the energy, Tammes' problem: points whose smallest angle is as large as it can be."""

import functools
import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import normalize, uniform
from ..geometry.directions import directions, through_direction
from .equal_contacts import equalize, largest_cosine
from .hops import hop
from .lbfgs import lbfgs

GROUP = 32  # starts that are searched together
POLISHED = 8  # of those a hop has disturbed, the most promising ones, whose contacts are made exact
POWERS = (8.0, 32.0, 128.0, 512.0)  # each start is the minimum of the power before
AGAIN = (64.0, 512.0)  # powers that relax what a hop has disturbed


def spread(
    n: int,
    dim: int,
    half_space: bool,
    *,
    starts: int,
    hops: int,
    tolerance: float = 1e-9,
    steps: int = 2000,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Float[Tensor, "n dim"]:
    """The best of several searches of 32 random starts each; every search has a seed of its own.

    A search knows nothing of the others and the best one counts, so more starts never give less. It follows the
    minimum of E_s^{1/s} as s grows, makes the contacts of the most promising minima exact, and hops on from the best.
    The minima at finite s are only a way to the limit: they need not be exact, whatever the ``tolerance``.
    """
    tolerance, steps = max(tolerance, 1e-6), min(steps, 100)
    found = torch.stack(
        [
            _search(n, dim, half_space, hops, tolerance, steps, torch.Generator().manual_seed(seed + 2**32 * k), device)
            for k in range(-(-starts // GROUP))
        ]
    )
    return found[largest_cosine(found, half_space).argmin()]


def _search(
    n: int,
    dim: int,
    half_space: bool,
    hops: int,
    tolerance: float,
    steps: int,
    generator: torch.Generator,
    device: torch.device | str | None,
) -> Tensor:
    """A small first power leads all starts to the same few minima, so the quarters begin at different powers."""
    start = uniform(GROUP * n, dim, generator=generator, dtype=torch.float64).view(GROUP, n, dim).to(device)
    relaxed = [
        _follow(part, POWERS[k:], half_space, tolerance, steps) for k, part in enumerate(start.chunk(len(POWERS)))
    ]
    points, values = _polished(torch.cat(relaxed), half_space)  # all: the order may change

    def relax(x: Tensor) -> tuple[Tensor, Tensor]:
        x = _follow(x, AGAIN, half_space, tolerance, min(steps, 60))
        return _polished(x[largest_cosine(x, half_space).argsort()[:POLISHED]], half_space)

    best, _ = hop(
        points,
        values,
        relax,
        children=GROUP,
        rounds=hops,
        patience=6,
        apart=1e-9,
        half_space=half_space,
        generator=generator,
    )
    # A smaller damping converges where the contacts leave a point free to first order, a larger one where many do.
    last = torch.cat([best[None], *(equalize(best[None], half_space, steps=100, damping=d) for d in (1e-3, 1e-5))])
    return last[largest_cosine(last, half_space).argmin()]


def _follow(x: Tensor, powers: tuple[float, ...], half_space: bool, tolerance: float, steps: int) -> Tensor:
    for s in powers:
        objective = functools.partial(_soft_maximum, dim=x.shape[2], half_space=half_space, s=s)
        flat, _ = lbfgs(objective, x.flatten(1), tolerance=tolerance, steps=steps)
        x = normalize(flat.view(x.shape))
    return x


def _polished(x: Tensor, half_space: bool) -> tuple[Tensor, Tensor]:
    """The rows with exact contacts, and −(smallest angle), which says how good they are."""
    x = equalize(x, half_space)
    return x, largest_cosine(x, half_space).clamp(-1, 1).asin() - math.pi / 2


def _soft_maximum(x: Tensor, dim: int, half_space: bool, s: float) -> tuple[Tensor, Tensor]:
    r"""(1/s)·log Σ q^{−s/2} + log 2, which is log(2/smallest distance) in the limit, and its gradient by unnormalized points.

    ``s`` is a power of 2, so that q^{−s/2} is made by squaring.
    """
    unit, lengths = directions(x.unflatten(1, (-1, dim)))
    cos = unit @ unit.mT
    q = 2 - 2 * (cos.abs() if half_space else cos)
    q.diagonal(dim1=1, dim2=2).fill_(math.inf)
    nearest = q.flatten(1).amin(1)[:, None, None].clamp_min(1e-300)
    power = nearest / q.clamp_min(1e-300)
    for _ in range(int(math.log2(s)) - 1):
        power.square_()
    total = power.sum((1, 2), keepdim=True)
    value = (total.log() / s - nearest.log() / 2).flatten() + math.log(2)
    share = power.div_(total).div_(q)
    share = share.mul_(cos.sign()) if half_space else share
    grad = 2 * (unit.mT @ share).mT  # symmetric, and a product with few rows is faster than one with few columns
    return value, through_direction(grad, unit, lengths).flatten(1)
