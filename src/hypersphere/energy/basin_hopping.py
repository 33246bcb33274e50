"""Basin hopping from the best arrangements found: move points into holes or rotate a half of them, then minimize again."""

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import normalize, uniform

Relaxation: TypeAlias = Callable[
    [Tensor], tuple[Tensor, Tensor]
]  # (batch, n, dim) → some of them relaxed, and their values

PARENTS = 4  # arrangements kept from one round to the next
PROBES = 300  # random places among which a hole is searched
DEEPEST = 6  # of these places, one of which is taken


def hop_basins(
    points: Float[Tensor, "parents n dim"],
    values: Float[Tensor, " parents"],
    relax: Relaxation,
    *,
    children: int,
    rounds: int,
    patience: int,
    apart: float,
    half_space: bool,
    generator: torch.Generator,
) -> tuple[Float[Tensor, "n dim"], Float[Tensor, ""]]:
    """Return the arrangement of least value after at most ``rounds`` rounds, of which the last ``patience`` brought nothing.

    A round disturbs the four best arrangements, whose values differ by more than the share ``apart``, into ``children``
    new ones and relaxes them. The parents are never lost, so the value never rises.
    """
    points, values = keep_distinct(points, values, apart)
    idle = 0
    for _ in range(rounds):
        if idle == patience:
            break
        parents = points[torch.arange(children, device=points.device) % len(points)]
        found, reached = relax(disturb(parents, half_space, generator))
        before = values[0].item()
        points, values = keep_distinct(torch.cat([points, found]), torch.cat([values, reached]), apart)
        # A smaller fall is one of the same arrangement, which is relaxed to a rough tolerance only.
        idle = 0 if values[0].item() < before - apart * abs(before) else idle + 1
    return points[0], values[0]


def keep_distinct(points: Tensor, values: Tensor, apart: float, most: int = PARENTS) -> tuple[Tensor, Tensor]:
    """Return the best few whose values differ; two arrangements of one value are taken for the same one."""
    chosen: list[int] = []
    for i in values.argsort().tolist():
        if values[i].isfinite() and all(abs(values[i] - values[j]) > apart * abs(values[j]) for j in chosen):
            chosen.append(i)
        if len(chosen) == most:
            break
    return points[chosen], values[chosen]


def disturb(
    points: Float[Tensor, "batch n dim"], half_space: bool, generator: torch.Generator
) -> Float[Tensor, "batch n dim"]:
    """Change each row in one of four ways in turn: move one, two or three points into holes, or rotate a half of the points.

    Rows change their way after every four, so that each parent of :func:`hop` is changed in all ways.
    """
    x = points.clone()
    way = torch.arange(len(x)) // PARENTS % 4
    turned = (way == 3).nonzero().flatten().tolist() if x.shape[2] > 2 else []
    for row in turned:
        x[row] = _turn_half(x[row], generator)
    for moves in range(1, 4):
        rows = (way >= moves - 1).nonzero().flatten()
        rows = torch.tensor([r for r in rows.tolist() if r not in turned], dtype=torch.long)
        if len(rows):
            x[rows] = _move_into_hole(x[rows], half_space, generator)
    return shake(x, generator)


def shake(points: Float[Tensor, "batch n dim"], generator: torch.Generator) -> Float[Tensor, "batch n dim"]:
    """Move each point by about a fiftieth of the distance to its neighbors, which also breaks any symmetry."""
    spacing = (1 / points.shape[1]) ** (1 / (points.shape[2] - 1))
    noise = torch.randn(points.shape, generator=generator, dtype=points.dtype).to(points.device)
    return normalize(points + 0.04 * spacing * noise)


def _move_into_hole(x: Tensor, half_space: bool, generator: torch.Generator) -> Tensor:
    """Move a random point of each row to one of the places, among many random ones, that are farthest from all points."""
    batch, n, dim = x.shape
    places = uniform(batch * PROBES, dim, generator=generator, dtype=x.dtype).view(batch, PROBES, dim).to(x.device)
    near = places @ x.mT
    near = (near.abs() if half_space else near).amax(2)
    deep = near.argsort(dim=1)[:, :DEEPEST]
    rows = torch.arange(batch, device=x.device)
    place = deep[rows, torch.randint(0, DEEPEST, (batch,), generator=generator).to(x.device)]
    x[rows, torch.randint(0, n, (batch,), generator=generator).to(x.device)] = places[rows, place]
    return x


def _turn_half(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return the points on one side of a random great circle, turned by a random angle in a plane perpendicular to its pole."""
    frame = torch.linalg.qr(torch.randn(x.shape[1], 3, generator=generator, dtype=x.dtype)).Q.to(x.device)
    pole, a, b = frame.unbind(1)
    angle = 2 * math.pi * torch.rand(1, generator=generator, dtype=x.dtype).item()
    u, v = x @ a, x @ b
    du, dv = (
        (math.cos(angle) - 1) * u - math.sin(angle) * v,
        math.sin(angle) * u + (math.cos(angle) - 1) * v,
    )
    return torch.where((x @ pole > 0)[:, None], x + du[:, None] * a + dv[:, None] * b, x)
