"""The limit s → ∞ of the energy, Tammes' problem: points with the largest possible smallest angle."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from .basin_hopping import hop_basins, keep_distinct, shake
from .interior_point import largest_cosine, minimize_largest_cosine
from .point_symmetry import PointSymmetry, draw_orbits, no_symmetry, rotation_symmetries

STARTS_PER_SEARCH = 32  # random starts of one search
SYMMETRIC_STARTS = 128  # divided by the order of a symmetry: its number of starts
MAX_STEPS = 60  # enough for the interior-point method from a random start
MAX_RELAXED = 8  # best symmetric arrangements that are relaxed without their symmetry
SHAKES = 4  # perturbed copies of each of them: with 80 points, every second copy returns to the same arrangement
MARGIN = 5e-3  # relative to 1 − cos: a row stops if its expected result is this much worse than the best
DAMPINGS = (1e-3, 1e-5, 1e-7)  # a smaller one converges if the contacts leave a point free to first order
PATIENCE = 6  # rounds of hops without improvement before the search ends


def find_tammes_points(
    n: int,
    dim: int,
    half_space: bool,
    *,
    starts: int,
    hops: int,
    steps: int = MAX_STEPS,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Float[Tensor, "n dim"]:
    """Return the best result of several searches with 32 random starts each.

    The searches are independent and have different seeds, so more starts never give a worse result. A search starts from
    32 random arrangements and from 64 to 21 arrangements of every symmetry that n points can have. The interior-point
    method makes the contacts of all arrangements exact. The best symmetric arrangements are then relaxed without their
    symmetry, and basin hopping continues from the best of all.
    """
    results = torch.stack(
        [
            _Search(n, dim, half_space, min(steps, MAX_STEPS), seed + 2**32 * k, device).run(hops)
            for k in range(-(-starts // STARTS_PER_SEARCH))
        ]
    )
    return results[largest_cosine(results, half_space).argmin()]


class _Search:
    """One search with its random generator and the largest cosine of its best arrangement so far."""

    def __init__(
        self, n: int, dim: int, half_space: bool, steps: int, seed: int, device: torch.device | str | None
    ) -> None:
        self.n, self.half_space, self.steps, self.device = n, half_space, steps, device
        self.no_symmetry = no_symmetry(dim)
        self.symmetries = rotation_symmetries(n, dim, half_space)[::-1]  # the fastest first
        self.generator = torch.Generator().manual_seed(seed)
        self.best_cosine = 1.0

    def run(self, hops: int) -> Tensor:
        """Return the best arrangement of the search."""
        points = torch.cat([self._search_from_random(symmetry) for symmetry in [*self.symmetries, self.no_symmetry]])
        values = self._evaluate(points)
        if self.symmetries:
            best, _ = keep_distinct(points[:-STARTS_PER_SEARCH], values[:-STARTS_PER_SEARCH], 1e-9, MAX_RELAXED)
            relaxed, relaxed_values = self._relax(shake(best.repeat(SHAKES, 1, 1), self.generator))
            points, values = torch.cat([points, relaxed]), torch.cat([values, relaxed_values])
        best, _ = hop_basins(
            points,
            values,
            self._relax,
            children=STARTS_PER_SEARCH,
            rounds=hops,
            patience=PATIENCE,
            apart=1e-9,
            half_space=self.half_space,
            generator=self.generator,
        )
        for damping in DAMPINGS:
            best = minimize_largest_cosine(best[None], self.half_space, steps=100, damping=damping)[0]
        return best

    def _search_from_random(self, symmetry: PointSymmetry) -> Tensor:
        batch = STARTS_PER_SEARCH if symmetry.order == 1 else SYMMETRIC_STARTS // symmetry.order
        points = draw_orbits(batch, self.n, symmetry, self.generator).to(self.device)
        return symmetry.expand(self._minimize(points, symmetry))

    def _relax(self, points: Tensor) -> tuple[Tensor, Tensor]:
        points = self._minimize(points, self.no_symmetry)
        return points, self._evaluate(points)

    def _minimize(self, points: Tensor, symmetry: PointSymmetry) -> Tensor:
        hopeless = self.best_cosine + MARGIN * (1 - self.best_cosine)
        points = minimize_largest_cosine(
            points, self.half_space, steps=self.steps, symmetry=symmetry, hopeless=hopeless
        )
        largest = largest_cosine(symmetry.expand(points), self.half_space).min().item()
        self.best_cosine = min(self.best_cosine, largest)
        return points

    def _evaluate(self, points: Tensor) -> Tensor:
        """Return −(smallest angle) of each arrangement."""
        return largest_cosine(points, self.half_space).clamp(-1, 1).asin() - math.pi / 2
