"""Basin hopping from the best arrangements found: move points into holes or rotate one half, then minimize again."""

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import normalize, uniform

Relaxation: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Maps arrangements (batch, n, dim) to relaxed arrangements and their values."""

MAX_PARENTS = 4  # arrangements kept from one round to the next
HOLE_PROBES = 300  # random directions tried to find holes
DEEPEST_HOLES = 6  # number of these directions, farthest from all points, from which one is drawn


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
    """Return the arrangement with the least value and this value, after basin hopping.

    Each round makes new arrangements by disturbing the best four, relaxes them, and keeps the best four of all. Parents
    compete with their children, so the least value never increases.

    Args:
        points: Arrangements to start from.
        values: Their values.
        relax: Function that minimizes arrangements.
        children: Number of new arrangements per round.
        rounds: Maximum number of rounds.
        patience: Number of rounds without improvement after which the search ends.
        apart: Relative difference above which two values belong to different arrangements.
        half_space: Whether each point x stands for ±x.
        generator: Random generator of the search.
    """
    points, values = keep_distinct(points, values, apart)
    idle = 0
    for _ in range(rounds):
        if idle == patience:
            break
        parents = points[torch.arange(children, device=points.device) % len(points)]
        new_points, new_values = relax(disturb(parents, half_space, generator))
        before = values[0].item()
        points, values = keep_distinct(torch.cat([points, new_points]), torch.cat([values, new_values]), apart)
        # A smaller decrease comes from the rough tolerance of the relaxation, not from a new arrangement.
        idle = 0 if values[0].item() < before - apart * abs(before) else idle + 1
    return points[0], values[0]


def keep_distinct(points: Tensor, values: Tensor, apart: float, most: int = MAX_PARENTS) -> tuple[Tensor, Tensor]:
    """Return up to ``most`` best arrangements with different values. Equal values are taken for the same arrangement."""
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
    """Disturb each row in one of four ways: move one, two or three points into holes, or rotate half of the points.

    The way changes after every four rows, so that each of the four parents in :func:`hop_basins` is disturbed in all ways.
    """
    x = points.clone()
    way = torch.arange(len(x)) // MAX_PARENTS % 4
    rotated = (way == 3).nonzero().flatten().tolist() if x.shape[2] > 2 else []
    for row in rotated:
        x[row] = _rotate_half(x[row], generator)
    for moves in range(1, 4):
        rows = (way >= moves - 1).nonzero().flatten()
        rows = torch.tensor([r for r in rows.tolist() if r not in rotated], dtype=torch.long)
        if len(rows):
            x[rows] = _move_into_hole(x[rows], half_space, generator)
    return shake(x, generator)


def shake(points: Float[Tensor, "batch n dim"], generator: torch.Generator) -> Float[Tensor, "batch n dim"]:
    """Move each point by about a fiftieth of the distance to its neighbors. This also breaks any symmetry."""
    spacing = (1 / points.shape[1]) ** (1 / (points.shape[2] - 1))
    noise = torch.randn(points.shape, generator=generator, dtype=points.dtype).to(points.device)
    return normalize(points + 0.04 * spacing * noise)


def _move_into_hole(x: Tensor, half_space: bool, generator: torch.Generator) -> Tensor:
    """Move a random point of each row into a hole: one of the six among 300 random places that are farthest from all points."""
    batch, n, dim = x.shape
    places = (
        uniform(batch * HOLE_PROBES, dim, generator=generator, dtype=x.dtype).view(batch, HOLE_PROBES, dim).to(x.device)
    )
    near = places @ x.mT
    near = (near.abs() if half_space else near).amax(2)
    deep = near.argsort(dim=1)[:, :DEEPEST_HOLES]
    rows = torch.arange(batch, device=x.device)
    chosen = deep[rows, torch.randint(0, DEEPEST_HOLES, (batch,), generator=generator).to(x.device)]
    x[rows, torch.randint(0, n, (batch,), generator=generator).to(x.device)] = places[rows, chosen]
    return x


def _rotate_half(x: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate the points on one side of a random great circle by a random angle, in a plane perpendicular to its pole."""
    frame = torch.linalg.qr(torch.randn(x.shape[1], 3, generator=generator, dtype=x.dtype)).Q.to(x.device)
    pole, a, b = frame.unbind(1)
    angle = 2 * math.pi * torch.rand(1, generator=generator, dtype=x.dtype).item()
    u, v = x @ a, x @ b
    du = (math.cos(angle) - 1) * u - math.sin(angle) * v
    dv = math.sin(angle) * u + (math.cos(angle) - 1) * v
    return torch.where((x @ pole > 0)[:, None], x + du[:, None] * a + dv[:, None] * b, x)
