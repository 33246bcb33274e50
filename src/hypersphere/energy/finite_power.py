"""The search for points of least energy at a finite power: random and symmetric starts, L-BFGS, hops."""

import functools

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import normalize, uniform
from ..geometry.directions import directions, through_direction
from .hops import distinct, hop, shaken
from .kernels import Kernel
from .lbfgs import Objective, lbfgs
from .orbits import Orbits, itself, random_orbits, turns
from .pair_sums import value_and_gradient

ROUGHLY = 1e-6  # tolerance that tells arrangements apart while the search goes on
SHORT = 150  # steps of a relaxation while the search goes on
CHILDREN = 24  # of a round of hops
SYMMETRIC = 12  # times the starts, 24 at most, over its order: the starts of a symmetry
PATIENCE = 6  # rounds of hops that may bring nothing
KEPT = 8  # symmetric arrangements that are relaxed without their symmetry


def least_points(
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
    """The best points and their energy over unordered pairs, ±x_i in half space without n·φ(4), from random starts.

    With ``hops`` the search begins with arrangements of every symmetry that n points can have, too; the best of them
    are relaxed once more without their symmetry, and the search goes on from the best of all.
    """
    generator = torch.Generator().manual_seed(seed)
    start = uniform(starts * n, dim, generator=generator, dtype=torch.float64).view(starts, n, dim).to(device)
    if not hops:
        points, energies = _relaxed(start, kernel, half_space, tolerance, steps)
        return points[energies.argmin()], energies.min()
    loose, short = max(tolerance, ROUGHLY), min(steps, SHORT)
    rough = functools.partial(_relaxed, kernel=kernel, half_space=half_space, tolerance=loose, steps=short)
    points, energies = rough(start)
    found = []
    for symmetry in turns(n, dim, half_space):
        orbits = random_orbits(SYMMETRIC * min(starts, 24) // symmetry.order, n, symmetry, generator).to(device)
        flat, values = lbfgs(
            orbit_objective(kernel, half_space, symmetry), orbits.flatten(1), tolerance=loose, steps=short
        )
        found.append((symmetry.whole(normalize(flat.view(orbits.shape))), values))
    if found:
        best, _ = distinct(torch.cat([x for x, _ in found]), torch.cat([v for _, v in found]), 1e-7, KEPT)
        best, values = rough(shaken(best, generator))
        points, energies = torch.cat([points, best]), torch.cat([energies, values])
    best, _ = hop(
        points,
        energies,
        rough,
        children=CHILDREN,
        rounds=hops,
        patience=PATIENCE,
        apart=1e-7,
        half_space=half_space,
        generator=generator,
    )
    points, energies = _relaxed(best[None], kernel, half_space, tolerance, steps)
    return points[0], energies[0]


def orbit_objective(kernel: Kernel, half_space: bool, symmetry: Orbits) -> Objective:
    """The energy of whole arrangements and its gradient by one unnormalized point of each orbit.

    Of the pairs only those of these points with all are formed, a k-th of them. The energy is over unordered pairs.
    Distances below the kernel's floor count as the floor.
    """
    order, dim = symmetry.order, len(symmetry.turn)
    constant = kernel.value(torch.pdist(symmetry.fixed).square()).sum()  # of the fixed points among themselves

    def objective(flat: Tensor) -> tuple[Tensor, Tensor]:
        unit, lengths = directions(flat.unflatten(1, (-1, dim)))
        whole = symmetry.whole(unit)
        cos = (unit @ whole.mT).unsqueeze(1)
        value, slope = _of_cosines(kernel, cos)
        if half_space:
            opposite, back = _of_cosines(kernel, -cos)
            value, slope = value + opposite, slope - back
        fixed = value[..., order * unit.shape[1] :]  # a pair with a fixed point is there once, any other twice
        share = 1.0 if half_space else 0.5
        energy = share * order * (value.sum((1, 2, 3)) + fixed.sum((1, 2, 3))) + constant.to(flat)
        pull = (slope.squeeze(1) @ whole).mul_(-4 * share * order)
        return energy, through_direction(pull, unit, lengths).flatten(1)

    return objective


def _of_cosines(kernel: Kernel, cos: Tensor) -> tuple[Tensor, Tensor]:
    value, slope = kernel.value_and_slope((2 - 2 * cos).clamp_min_(kernel.floor**2))
    itself(value).zero_()
    itself(slope).zero_()
    return value, slope


def _relaxed(points: Tensor, kernel: Kernel, half_space: bool, tolerance: float, steps: int) -> tuple[Tensor, Tensor]:
    """The nearest minimum of each row of a batch, and its energy."""
    flat, energies = lbfgs(
        whole_objective(kernel, half_space, points.shape[2]), points.flatten(1), tolerance=tolerance, steps=steps
    )
    return normalize(flat.view(points.shape)), energies


def whole_objective(kernel: Kernel, half_space: bool, dim: int) -> Objective:
    """The energy over unordered pairs, and its gradient by flattened, unnormalized points."""

    def objective(flat: Tensor) -> tuple[Tensor, Tensor]:
        sums, gradient = value_and_gradient(flat.unflatten(1, (-1, dim)), kernel, half_space)
        # Half-space sums run over ordered pairs of neurons, each standing for two unordered pairs of points ±x.
        share = 1.0 if half_space else 0.5
        return share * sums, share * gradient.flatten(1)

    return objective
