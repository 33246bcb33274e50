r"""A velocity field on the sphere, learned by flow matching, and its integration.

A flow carries points of a simple distribution at t = 0 to data at t = 1 along dx/dt = v(x, t) with v tangent to the sphere. Flow
matching (arXiv:2210.02747; on manifolds arXiv:2302.03660) fits v to the velocities of the arcs between random pairs, each of
which is known exactly.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..geometry import exp_map, log_map, normalize, tangent


class SphereVelocity(nn.Module):
    """A perceptron from a point of the sphere and a time to a tangent vector.

    Args:
        in_features: Dimension d of the space around the sphere.
        hidden: Neurons per hidden layer.
        depth: Hidden layers.
        frequencies: Number K of frequencies. The network sees the time t as t, sin(π·t·2^k) and cos(π·t·2^k) for k < K.

    Raises:
        ValueError: If an argument is too small.

    >>> field, x = SphereVelocity(3, hidden=16), torch.eye(3)
    >>> v = field(x, torch.tensor([0.0, 0.5, 1.0]))
    >>> (v * x).sum(1).abs().max() < 1e-6
    tensor(True)
    """

    def __init__(self, in_features: int, *, hidden: int = 256, depth: int = 3, frequencies: int = 4):
        super().__init__()
        if in_features < 2 or min(hidden, depth, frequencies) < 1:
            raise ValueError(
                "in_features must be an integer ≥ 2, hidden, depth and frequencies integers ≥ 1; got "
                f"{in_features}, {hidden}, {depth}, {frequencies}"
            )
        self.in_features, self.frequencies = in_features, frequencies
        widths = [in_features + 1 + 2 * frequencies, *[hidden] * depth]
        layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.SiLU())]
        self.body = nn.Sequential(*layers, nn.Linear(hidden, in_features))

    def forward(self, x: Float[Tensor, "batch dim"], t: Float[Tensor, " batch"]) -> Float[Tensor, "batch dim"]:
        """Return the velocity at points ``x`` of length 1 and times ``t`` in [0, 1]."""
        phases = t[:, None] * (math.pi * 2.0 ** torch.arange(self.frequencies, device=t.device, dtype=t.dtype))
        return tangent(x, self.body(torch.cat([x, t[:, None], phases.sin(), phases.cos()], 1)))


def geodesic_velocity(
    start: Float[Tensor, "*batch d"], end: Float[Tensor, "*batch d"], t: Float[Tensor, "*batch"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d"]]:
    r"""Return the point at time t of the arc from start to end, and its velocity.

    With the logarithm s of the end at the start, whose length is the angle θ, the point is
    cos(tθ)·x₀ + sin(tθ)·s/θ and the velocity cos(tθ)·s − θ·sin(tθ)·x₀, of constant length θ.

    Args:
        start: Points at t = 0; they are normalized.
        end: Points at t = 1; they are normalized.
        t: Times.

    Returns:
        Points of length 1, and tangent vectors at them.

    >>> x, v = geodesic_velocity(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([1.0]))
    >>> x.round(decimals=3).abs(), v.round(decimals=3).abs()
    (tensor([[0., 1.]]), tensor([[1.5710, 0.0000]]))
    """
    origin, step = normalize(start), log_map(start, end)
    angle = torch.linalg.vector_norm(step, dim=-1, keepdim=True)
    phase = t[..., None] * angle
    return exp_map(origin, t[..., None] * step), phase.cos() * step - angle * phase.sin() * origin


def integrate_flow(
    velocity: Callable[[Tensor, Tensor], Tensor], x: Float[Tensor, "batch d"], *, steps: int = 50
) -> Float[Tensor, "batch d"]:
    """Move points along a velocity field from t = 0 to t = 1 by exponential maps, so that they stay on the sphere.

    This is the midpoint rule on the sphere. Half a step along the velocity at the start leads to a middle point. The velocity
    there is transported back to the start, and the whole step goes along it. The error is of second order in the step length.

    Args:
        velocity: Maps points ``(batch, d)`` and times ``(batch,)`` to tangent vectors.
        x: Points at t = 0; they are normalized.
        steps: Number of steps of equal length.

    Raises:
        ValueError: If ``steps`` is below 1.

    >>> turn = lambda x, t: torch.stack([-x[:, 1], x[:, 0]], 1) * torch.pi / 2
    >>> integrate_flow(turn, torch.tensor([[1.0, 0.0]]), steps=4).round(decimals=3).abs()
    tensor([[0., 1.]])
    """
    if steps < 1:
        raise ValueError(f"steps must be an integer ≥ 1, got {steps!r}")
    x, h = normalize(x), 1 / steps
    for index in range(steps):
        t = torch.full((len(x),), index * h, device=x.device, dtype=x.dtype)
        half = h / 2 * tangent(x, velocity(x, t))
        middle = exp_map(x, half)
        x = exp_map(x, h * _transport(middle, x, velocity(middle, t + h / 2)))
    return x


def _transport(
    start: Float[Tensor, "batch d"], end: Float[Tensor, "batch d"], v: Float[Tensor, "batch d"]
) -> Float[Tensor, "batch d"]:
    """Transport tangent vectors in parallel along the short arc from start to end: v − (v·end)/(1 + start·end)·(start + end)."""
    share = (v * end).sum(-1, keepdim=True) / (1 + (start * end).sum(-1, keepdim=True)).clamp_min(1e-6)
    return v - share * (start + end)
