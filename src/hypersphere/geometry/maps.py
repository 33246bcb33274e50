"""Tangent vectors of the sphere, its exponential and logarithmic map, and the arc between two points."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from .angles import angle
from .norms import compute_length, norm, normalize


def tangent(x: Float[Tensor, "*x d"], v: Float[Tensor, "*v d"]) -> Float[Tensor, "*out d"]:
    r"""Return the part of ``v`` tangent to the sphere at x̂: v − (v·x̂)x̂.

    >>> tangent(torch.tensor([2.0, 0.0]), torch.tensor([3.0, 4.0]))
    tensor([0., 4.])
    """
    xhat = normalize(x)
    return v - (v * xhat).sum(-1, keepdim=True) * xhat


def exp_map(x: Float[Tensor, "*x d"], v: Float[Tensor, "*v d"]) -> Float[Tensor, "*out d"]:
    r"""Move from x̂ along the tangent ``v`` by its length: cos‖v‖·x̂ + sin‖v‖·v̂. ``v`` is projected to the tangent space first.

    >>> exp_map(torch.tensor([1.0, 0.0]), torch.tensor([0.0, torch.pi / 2])).abs().round(decimals=4)
    tensor([0., 1.])
    """
    v = tangent(x, v)
    length = norm(v, keepdim=True)
    # torch.sinc(t) is sin(πt)/(πt); it is smooth at 0, where v̂ is not.
    return normalize(torch.cos(length) * normalize(x) + torch.sinc(length / math.pi) * v)


def log_map(x: Float[Tensor, "*x d"], y: Float[Tensor, "*y d"]) -> Float[Tensor, "*out d"]:
    r"""Return the tangent at x̂ that :func:`exp_map` maps to ŷ: the direction of the arc with the length θ(x, y).

    Between antipodal points it is the direction of the great circle through the coordinate axis farthest from x̂.

    >>> log_map(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 3.0]))
    tensor([0.0000, 1.5708])
    """
    xhat, yhat = normalize(x), normalize(y)
    theta = angle(xhat, yhat).unsqueeze(-1)
    xhat, yhat = torch.broadcast_tensors(xhat, yhat)
    # ŷ ± x̂ has the same tangent part as ŷ, and a small radial part, which rounds less.
    near = (xhat * yhat).sum(-1, keepdim=True) > 0
    direction = tangent(xhat, torch.where(near, yhat - xhat, yhat + xhat))
    axis = (torch.arange(xhat.shape[-1], device=xhat.device) == xhat.detach().abs().argmin(-1, keepdim=True)).to(
        xhat.dtype
    )
    _, defined = compute_length(direction, -1)
    direction = torch.where(defined | near, direction, tangent(xhat, axis))
    return theta * normalize(direction)


def slerp(
    x: Float[Tensor, "*x d"], y: Float[Tensor, "*y d"], t: float | Float[Tensor, "..."]
) -> Float[Tensor, "*out d"]:
    r"""Interpolate on the arc from x̂ to ŷ at constant speed. ``t`` outside [0, 1] continues along the circle.

    A tensor ``t`` broadcasts against the leading axes of ``x`` and ``y``. Antipodal ends as in :func:`log_map`.

    >>> slerp(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), 0.5)
    tensor([0.7071, 0.7071])
    """
    step = log_map(x, y)
    return exp_map(x, (t.unsqueeze(-1) if isinstance(t, Tensor) else t) * step)
