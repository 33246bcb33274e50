"""The limit s → ∞ of the energy, Tammes' problem: points whose smallest angle is as large as it can be."""

import functools
import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import normalize
from ..geometry.directions import directions, through_direction
from .lbfgs import lbfgs

POWERS = [2.0**k for k in range(3, 21, 2)]  # 8 … 5·10⁵: each start is the minimum of the power before


def spread(
    start: Float[Tensor, "starts n dim"], half_space: bool, tolerance: float, steps: int
) -> Float[Tensor, "n dim"]:
    """From each start follow the minimum of E_s^{1/s} as s grows, then make the contacts of the best exactly equal.

    A small first power leads all starts to the same few minima, which need not be the best ones of the limit, so the
    quarters of the starts begin at different powers.
    """
    x = start
    for k, s in enumerate(POWERS):
        part = x[: -(-len(x) * min(k + 1, 4) // 4)]
        objective = functools.partial(_soft_maximum, dim=part.shape[2], half_space=half_space, s=s)
        flat, _ = lbfgs(objective, part.flatten(1), tolerance=tolerance, steps=steps)
        x = torch.cat([normalize(flat.view(part.shape)), x[len(part) :]])
        if k >= 3:
            x = x[_largest_cosine(x, half_space).argsort()[:8]]
    polished = torch.stack([_equal_contacts(y, half_space) for y in x])
    return polished[_largest_cosine(polished, half_space).argmin()]


def _largest_cosine(x: Tensor, half_space: bool) -> Tensor:
    return _cosines(x, half_space)[0].flatten(1).amax(1)


def _cosines(x: Tensor, half_space: bool) -> tuple[Tensor, Tensor]:
    """cos θ of each pair, of the nearer of ±x_j in half space, −1 for a point with itself; and the sign of that one."""
    cos = x @ x.mT
    sign = torch.where(cos < 0, -1.0, 1.0).to(cos.dtype) if half_space else torch.ones_like(cos)
    eye = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
    return (sign * cos).masked_fill(eye, -1), sign


def _soft_maximum(x: Tensor, dim: int, half_space: bool, s: float) -> tuple[Tensor, Tensor]:
    r"""(1/s)·log Σ q^{−s/2} + log 2, which is log(2/smallest distance) in the limit, and its gradient by unnormalized points."""
    x = x.unflatten(1, (-1, dim))
    unit, lengths = directions(x)
    cos, sign = _cosines(unit, half_space)
    q = 2 - 2 * cos
    exponent = (-s / 2) * q.clamp_min(1e-300).log()
    exponent.diagonal(dim1=1, dim2=2).fill_(-math.inf)
    flat = exponent.flatten(1)
    value = torch.logsumexp(flat, 1) / s + math.log(2)
    share = torch.softmax(flat, 1).view_as(q)
    grad = 2 * ((share / q * sign) @ unit)
    return value, through_direction(grad, unit, lengths).flatten(1)


def _equal_contacts(x: Tensor, half_space: bool) -> Tensor:
    """Newton's method on "all touching pairs have the same cosine t", in which x and t are unknown.

    At a locally best packing the touching pairs determine t, so this finishes what a finite power leaves open.
    """
    best = x
    n, dim = x.shape
    for _ in range(8):
        cos, sign = (c[0] for c in _cosines(x[None], half_space))
        top = cos.max()
        i, j = (cos > top - 1e-4).triu(1).nonzero(as_tuple=True)
        contacts = torch.arange(len(i), device=x.device)
        jacobian = torch.zeros(len(i) + n, n * dim + 1, dtype=x.dtype, device=x.device)
        blocks = jacobian[:, :-1].view(-1, n, dim)
        blocks[contacts, i] = sign[i, j, None] * x[j]
        blocks[contacts, j] = sign[i, j, None] * x[i]
        jacobian[: len(i), -1] = -1
        points = torch.arange(n, device=x.device)
        blocks[len(i) + points, points] = x  # steps are tangent
        residual = torch.cat([top - cos[i, j], torch.zeros(n, dtype=x.dtype, device=x.device)])
        step = torch.linalg.pinv(jacobian, rtol=1e-9) @ residual
        x = normalize(x + step[:-1].view(n, dim))
        if _largest_cosine(x[None], half_space) < _largest_cosine(best[None], half_space):
            best = x
    return best
