"""The limit s → ∞ of the energy, Tammes' problem: points whose smallest angle is as large as it can be."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from .basin_hopping import hop_basins, keep_distinct, shake
from .interior_point import largest_cosine, minimize_largest_cosine
from .point_symmetry import PointSymmetry, draw_orbits, no_symmetry, rotation_symmetries

GROUP = 32  # starts that are searched together
SYMMETRIC = 128  # over its order: the starts of a symmetry, of which the fewer there are the more points an orbit has
STEPS = 60  # in which the interior-point method ends from a random start
KEPT = 8  # symmetric arrangements that are relaxed without their symmetry
SHAKEN = 4  # times each of them: of 80 points every second one falls back
MARGIN = 5e-3  # of 1 − cos: a row that is expected to end so much short of the best is given up
DAMPINGS = (1e-3, 1e-5, 1e-7)  # a smaller one converges where the contacts leave a point free to first order
PATIENCE = 6  # rounds of hops without improvement before the search ends


def find_tammes_points(
    n: int,
    dim: int,
    half_space: bool,
    *,
    starts: int,
    hops: int,
    steps: int = STEPS,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Float[Tensor, "n dim"]:
    """Return the best of several searches of 32 random starts each; every search has a seed of its own.

    A search knows nothing of the others and the best one counts, so more starts never give less. It begins with 32
    random arrangements and with 64 to 21 of every symmetry that this number of points can have, makes the contacts of all exact,
    lets the best symmetric ones go on without their symmetry, and hops on from the best of all.
    """
    found = torch.stack(
        [
            _Search(n, dim, half_space, min(steps, STEPS), seed + 2**32 * k, device).best(hops)
            for k in range(-(-starts // GROUP))
        ]
    )
    return found[largest_cosine(found, half_space).argmin()]


class _Search:
    """One group: its random stream, and the largest cosine of its best arrangement so far."""

    def __init__(
        self, n: int, dim: int, half_space: bool, steps: int, seed: int, device: torch.device | str | None
    ) -> None:
        self.n, self.half_space, self.steps, self.device = n, half_space, steps, device
        self.alone, self.symmetries = (
            no_symmetry(dim),
            rotation_symmetries(n, dim, half_space)[::-1],
        )  # the quickest first
        self.generator = torch.Generator().manual_seed(seed)
        self.least = 1.0

    def best(self, hops: int) -> Tensor:
        """Return the best arrangement of the group."""
        points = torch.cat([self._starts(symmetry) for symmetry in [*self.symmetries, self.alone]])
        values = self._values(points)
        if self.symmetries:
            kept, _ = keep_distinct(points[:-GROUP], values[:-GROUP], 1e-9, KEPT)
            kept, reached = self._relax(shake(kept.repeat(SHAKEN, 1, 1), self.generator))
            points, values = torch.cat([points, kept]), torch.cat([values, reached])
        best, _ = hop_basins(
            points,
            values,
            self._relax,
            children=GROUP,
            rounds=hops,
            patience=PATIENCE,
            apart=1e-9,
            half_space=self.half_space,
            generator=self.generator,
        )
        for damping in DAMPINGS:
            best = minimize_largest_cosine(best[None], self.half_space, steps=100, damping=damping)[0]
        return best

    def _starts(self, symmetry: PointSymmetry) -> Tensor:
        batch = GROUP if symmetry.order == 1 else SYMMETRIC // symmetry.order
        points = draw_orbits(batch, self.n, symmetry, self.generator).to(self.device)
        return symmetry.expand(self._exact(points, symmetry))

    def _relax(self, points: Tensor) -> tuple[Tensor, Tensor]:
        points = self._exact(points, self.alone)
        return points, self._values(points)

    def _exact(self, points: Tensor, symmetry: PointSymmetry) -> Tensor:
        hopeless = self.least + MARGIN * (1 - self.least)
        points = minimize_largest_cosine(
            points, self.half_space, steps=self.steps, symmetry=symmetry, hopeless=hopeless
        )
        self.least = min(self.least, largest_cosine(symmetry.expand(points), self.half_space).min().item())
        return points

    def _values(self, points: Tensor) -> Tensor:
        """Return −(smallest angle), which says how good each is."""
        return largest_cosine(points, self.half_space).clamp(-1, 1).asin() - math.pi / 2
