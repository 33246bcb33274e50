"""The search for points of least energy at a finite power: random and symmetric starts, L-BFGS, hops."""

import functools

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import normalize, uniform
from ..geometry.fast_norms import directions, directions_backward
from .basin_hopping import hop_basins, keep_distinct, shake
from .kernels import Kernel
from .lbfgs import Objective, lbfgs
from .pair_sums import value_and_gradient
from .point_symmetry import PointSymmetry, draw_orbits, rotation_symmetries, self_entries

ROUGHLY = 1e-6  # tolerance for distinguishing arrangements during the search
SHORT = 150  # steps of a minimization during the search
CHILDREN = 24  # of a round of hops
SYMMETRIC = 12  # times the starts, 24 at most, over its order: the starts of a symmetry
PATIENCE = 6  # rounds of hops without improvement before the search ends
KEPT = 8  # arrangements that are relaxed without their symmetry
APART = 1e-7  # relative difference below which two energies are those of one arrangement
FIRST_RANDOM, FIRST = 3, 6  # the share of the random and of the symmetric starts that are tried first: 1/3 and 1/6
AGREEING = 3  # searches, of random starts and of each symmetry, that must reach the least energy to end there
HITS = 8  # total number of these starts


def find_riesz_points(
    n: int,
    dim: int,
    kernel: Kernel,
    half_space: bool,
    *,
    starts: int,
    hops: int,
    tolerance: float,
    steps: int,
    seed: int,
    device: torch.device | str | None = None,
) -> tuple[Float[Tensor, "n dim"], Float[Tensor, ""]]:
    """Return the best points and their energy over unordered pairs, ±x_i in half space without n·φ(4), from random starts.

    With ``hops`` the search begins with arrangements of every symmetry that n points can have, too. It ends when a few
    starts of several kinds reach the same least energy. Otherwise it takes many more; the best of them are relaxed once
    more without their symmetry, and the search goes on from the best of all.
    """
    generator = torch.Generator().manual_seed(seed)
    start = uniform(starts * n, dim, generator=generator, dtype=torch.float64).view(starts, n, dim).to(device)
    if not hops:
        points, energies = _relax(start, kernel, half_space, tolerance, steps)
        return points[energies.argmin()], energies.min()
    loose, short = max(tolerance, ROUGHLY), min(steps, SHORT)
    rough = functools.partial(_relax, kernel=kernel, half_space=half_space, tolerance=loose, steps=short)

    def search_symmetric(symmetry: PointSymmetry, count: int) -> tuple[Tensor, Tensor]:
        orbits = draw_orbits(count, n, symmetry, generator).to(device)
        flat, values = lbfgs(
            orbit_objective(kernel, half_space, symmetry), orbits.flatten(1), tolerance=loose, steps=short
        )
        return symmetry.expand(normalize(flat.view(orbits.shape))), values

    symmetries = rotation_symmetries(n, dim, half_space)
    counts = [SYMMETRIC * min(starts, 24) // symmetry.order for symmetry in symmetries]
    first = -(-starts // FIRST_RANDOM)
    searches = [rough(start[:first])]
    searches += [search_symmetric(symmetry, -(-c // FIRST)) for symmetry, c in zip(symmetries, counts, strict=True)]
    if _agree([values for _, values in searches]):
        points, energies = (torch.cat(parts) for parts in zip(*searches, strict=True))
        # Shaken, because an arrangement with a symmetry may be a saddle among those without.
        points, energies = _relax(
            shake(points[energies.argmin()][None], generator), kernel, half_space, tolerance, steps
        )
        return points[0], energies[0]
    if first < starts:
        searches.append(rough(start[first:]))
    searches += [
        search_symmetric(symmetry, c - -(-c // FIRST)) for symmetry, c in zip(symmetries, counts, strict=True) if c > 1
    ]
    points, energies = (torch.cat(parts) for parts in zip(*searches, strict=True))
    if symmetries:
        best, _ = keep_distinct(points, energies, APART, KEPT)
        best, values = rough(shake(best, generator))
        points, energies = torch.cat([points, best]), torch.cat([energies, values])
    best, _ = hop_basins(
        points,
        energies,
        rough,
        children=CHILDREN,
        rounds=hops,
        patience=PATIENCE,
        apart=APART,
        half_space=half_space,
        generator=generator,
    )
    points, energies = _relax(best[None], kernel, half_space, tolerance, steps)
    return points[0], energies[0]


def _agree(energies: list[Float[Tensor, "..."]]) -> bool:
    """Return whether enough starts of enough searches reached the least energy of all."""
    least = min(values.min().item() for values in energies)
    hits = [int((values - least <= APART * abs(least)).sum()) for values in energies]
    return sum(hits) >= HITS and sum(count > 0 for count in hits) >= AGREEING


def orbit_objective(kernel: Kernel, half_space: bool, symmetry: PointSymmetry) -> Objective:
    """Return the energy of whole arrangements and its gradient by one unnormalized point of each orbit.

    Of the pairs only those of these points with all are formed, a k-th of them. The energy is over unordered pairs.
    Distances below the kernel's floor count as the floor.
    """
    order, dim = symmetry.order, len(symmetry.rotation)
    constant = kernel.value(torch.pdist(symmetry.fixed).square()).sum()  # of the fixed points among themselves

    def objective(flat: Tensor) -> tuple[Tensor, Tensor]:
        unit, lengths = directions(flat.unflatten(1, (-1, dim)))
        whole = symmetry.expand(unit)
        cos = (unit @ whole.mT).unsqueeze(1)
        value, slope = _evaluate_cosines(kernel, cos)
        if half_space:
            opposite, back = _evaluate_cosines(kernel, -cos)
            value, slope = value + opposite, slope - back
        fixed = value[..., order * unit.shape[1] :]  # a pair with a fixed point is there once, any other twice
        share = 1.0 if half_space else 0.5
        energy = share * order * (value.sum((1, 2, 3)) + fixed.sum((1, 2, 3))) + constant.to(flat)
        pull = (slope.squeeze(1) @ whole).mul_(-4 * share * order)
        return energy, directions_backward(pull, unit, lengths).flatten(1)

    return objective


def _evaluate_cosines(kernel: Kernel, cos: Tensor) -> tuple[Tensor, Tensor]:
    value, slope = kernel.value_and_slope((2 - 2 * cos).clamp_min_(kernel.floor**2))
    self_entries(value).zero_()
    self_entries(slope).zero_()
    return value, slope


def _relax(points: Tensor, kernel: Kernel, half_space: bool, tolerance: float, steps: int) -> tuple[Tensor, Tensor]:
    """Return the nearest minimum of each row of a batch, and its energy."""
    flat, energies = lbfgs(
        point_objective(kernel, half_space, points.shape[2]), points.flatten(1), tolerance=tolerance, steps=steps
    )
    return normalize(flat.view(points.shape)), energies


def point_objective(kernel: Kernel, half_space: bool, dim: int) -> Objective:
    """Return the energy over unordered pairs, and its gradient by flattened, unnormalized points."""

    def objective(flat: Tensor) -> tuple[Tensor, Tensor]:
        sums, gradient = value_and_gradient(flat.unflatten(1, (-1, dim)), kernel, half_space)
        # Half-space sums run over ordered pairs of neurons, each standing for two unordered pairs of points ±x.
        share = 1.0 if half_space else 0.5
        return share * sums, share * gradient.flatten(1)

    return objective
