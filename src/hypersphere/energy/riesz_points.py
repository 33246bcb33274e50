"""Search for points of least energy with a finite power: random and symmetric starts, L-BFGS, basin hopping."""

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

ROUGH_TOLERANCE = 1e-6  # tolerance of the minimizations during the search
MAX_ROUGH_STEPS = 150  # steps of a minimization during the search
CHILDREN = 24  # new arrangements per round of basin hopping
SYMMETRIC_STARTS = 12  # times the number of random starts (at most 24), divided by the order: the starts of a symmetry
PATIENCE = 6  # rounds of hops without improvement before the search ends
MAX_RELAXED = 8  # best arrangements that are relaxed without their symmetry
SAME_ENERGY = 1e-7  # relative difference below which two energies belong to the same arrangement
FIRST_RANDOM, FIRST_SYMMETRIC = 3, 6  # one third of the random starts and one sixth of the symmetric ones run first
# The search ends early if this many starts reach the least energy, in this many of the searches. The random starts are one
# search, and the starts of each symmetry are another.
MIN_AGREEING_STARTS, MIN_AGREEING_SEARCHES = 8, 3


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
    """Return the best points found and their energy over unordered pairs; in half space, of ±x_i without n·φ(4).

    Without ``hops`` the search minimizes random starts only. With ``hops`` it also starts from arrangements of every
    symmetry that n points can have. The search ends if enough of the first starts reach the same least energy.
    Otherwise it runs the remaining starts, relaxes the best arrangements without their symmetry, and continues by basin
    hopping from the best of all.
    """
    generator = torch.Generator().manual_seed(seed)
    start = uniform(starts * n, dim, generator=generator, dtype=torch.float64).view(starts, n, dim).to(device)
    if not hops:
        points, energies = _relax(start, kernel, half_space, tolerance, steps)
        return points[energies.argmin()], energies.min()
    loose, short = max(tolerance, ROUGH_TOLERANCE), min(steps, MAX_ROUGH_STEPS)
    rough = functools.partial(_relax, kernel=kernel, half_space=half_space, tolerance=loose, steps=short)

    def search_symmetric(symmetry: PointSymmetry, count: int) -> tuple[Tensor, Tensor]:
        orbits = draw_orbits(count, n, symmetry, generator).to(device)
        flat, values = lbfgs(
            orbit_objective(kernel, half_space, symmetry), orbits.flatten(1), tolerance=loose, steps=short
        )
        return symmetry.expand(normalize(flat.view(orbits.shape))), values

    symmetries = rotation_symmetries(n, dim, half_space)
    counts = [SYMMETRIC_STARTS * min(starts, 24) // symmetry.order for symmetry in symmetries]
    first = -(-starts // FIRST_RANDOM)
    searches = [rough(start[:first])]
    searches += [
        search_symmetric(symmetry, -(-c // FIRST_SYMMETRIC)) for symmetry, c in zip(symmetries, counts, strict=True)
    ]
    if _agree([values for _, values in searches]):
        points, energies = (torch.cat(parts) for parts in zip(*searches, strict=True))
        # A symmetric minimum may be a saddle point without the symmetry, so shake it before the last minimization.
        points, energies = _relax(
            shake(points[energies.argmin()][None], generator), kernel, half_space, tolerance, steps
        )
        return points[0], energies[0]
    if first < starts:
        searches.append(rough(start[first:]))
    searches += [
        search_symmetric(symmetry, c - -(-c // FIRST_SYMMETRIC))
        for symmetry, c in zip(symmetries, counts, strict=True)
        if c > 1
    ]
    points, energies = (torch.cat(parts) for parts in zip(*searches, strict=True))
    if symmetries:
        best, _ = keep_distinct(points, energies, SAME_ENERGY, MAX_RELAXED)
        relaxed, values = rough(shake(best, generator))
        points, energies = torch.cat([points, relaxed]), torch.cat([energies, values])
    best, _ = hop_basins(
        points,
        energies,
        rough,
        children=CHILDREN,
        rounds=hops,
        patience=PATIENCE,
        apart=SAME_ENERGY,
        half_space=half_space,
        generator=generator,
    )
    points, energies = _relax(best[None], kernel, half_space, tolerance, steps)
    return points[0], energies[0]


def _agree(energies: list[Float[Tensor, "..."]]) -> bool:
    """Return whether enough starts in enough searches reached the least energy of all."""
    least = min(values.min().item() for values in energies)
    hits = [int((values - least <= SAME_ENERGY * abs(least)).sum()) for values in energies]
    return sum(hits) >= MIN_AGREEING_STARTS and sum(count > 0 for count in hits) >= MIN_AGREEING_SEARCHES


def orbit_objective(kernel: Kernel, half_space: bool, symmetry: PointSymmetry) -> Objective:
    """Return the energy of a symmetric arrangement as a function of one point per orbit, flattened and unnormalized.

    Only the pairs of these points with all points are formed, one in k pairs for a symmetry of order k. The energy runs
    over unordered pairs. Distances below the floor of the kernel are raised to the floor.
    """
    order, dim = symmetry.order, len(symmetry.rotation)
    constant = kernel.value(torch.pdist(symmetry.fixed).square()).sum()  # the pairs of fixed points

    def objective(flat: Tensor) -> tuple[Tensor, Tensor]:
        unit, lengths = directions(flat.unflatten(1, (-1, dim)))
        all_points = symmetry.expand(unit)
        cos = (unit @ all_points.mT).unsqueeze(1)
        value, slope = _evaluate_cosines(kernel, cos)
        if half_space:
            opposite, back = _evaluate_cosines(kernel, -cos)
            value, slope = value + opposite, slope - back
        fixed = value[
            ..., order * unit.shape[1] :
        ]  # a pair with a fixed point occurs once, all other pairs occur twice
        share = 1.0 if half_space else 0.5
        energy = share * order * (value.sum((1, 2, 3)) + fixed.sum((1, 2, 3))) + constant.to(flat)
        pull = (slope.squeeze(1) @ all_points).mul_(-4 * share * order)
        return energy, directions_backward(pull, unit, lengths).flatten(1)

    return objective


def _evaluate_cosines(kernel: Kernel, cos: Tensor) -> tuple[Tensor, Tensor]:
    value, slope = kernel.value_and_slope((2 - 2 * cos).clamp_min_(kernel.floor**2))
    self_entries(value).zero_()
    self_entries(slope).zero_()
    return value, slope


def _relax(points: Tensor, kernel: Kernel, half_space: bool, tolerance: float, steps: int) -> tuple[Tensor, Tensor]:
    """Return the local minimum that L-BFGS reaches from each row of a batch, and its energy."""
    flat, energies = lbfgs(
        point_objective(kernel, half_space, points.shape[2]), points.flatten(1), tolerance=tolerance, steps=steps
    )
    return normalize(flat.view(points.shape)), energies


def point_objective(kernel: Kernel, half_space: bool, dim: int) -> Objective:
    """Return the energy over unordered pairs as a function of flattened, unnormalized points."""

    def objective(flat: Tensor) -> tuple[Tensor, Tensor]:
        sums, gradient = value_and_gradient(flat.unflatten(1, (-1, dim)), kernel, half_space)
        # Half-space sums run over ordered pairs of neurons, each standing for two unordered pairs of points ±x.
        share = 1.0 if half_space else 0.5
        return share * sums, share * gradient.flatten(1)

    return objective
