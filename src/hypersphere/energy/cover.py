"""The covering radius: how far a direction can be from all neurons (F.9)."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from .._extras import require
from ..geometry import angle, arccos, norm, normalize, uniform
from ..geometry.directions import directions, through_direction
from .close import wide
from .holes import LARGEST_HULL, facet_constant, hole_radii
from .hyperspherical import as_neurons
from .lbfgs import lbfgs

FACETS = 1_000_000  # of the convex hull that is worth the wait


def covering_radius(
    weight: Float[Tensor, "neurons *dim"],
    probes: int = 64,
    seed: int = 0,
    method: Literal["auto", "exact", "probes"] = "auto",
) -> Float[Tensor, ""]:
    r"""α = max_u min_i arccos(u·ŵ_i), the farthest any direction is from its nearest neuron, in radians  (eq. F.36).

    It is exact, by scipy, in three cases. If the neurons lie in an open half space, as up to about twice as many random
    neurons as dimensions do, α = π − arccos‖p‖ with p the shortest point of their convex hull. If 0 is in the hull but
    the neurons do not span the space, α = π/2. Else α is the largest of :func:`hole_radii`, which needs the facets of
    the hull: up to 8 dimensions, as long as about a million facets are expected.

    Everywhere else it is only a lower bound: from ``probes`` random directions one climbs to the centre of a hole, and
    the deepest hole found is taken. The true radius of hundreds of neurons in three dimensions is missed by up to 0.05
    with 64 probes, and in high dimensions, where holes are too many to try, by an unknown amount.

    Args:
        weight: neurons in rows.
        probes, seed: of the lower bound.
        method: ``"exact"`` refuses what cannot be had exactly, ``"probes"`` asks for the lower bound, ``"auto"`` takes
            the exact value in the cases above and the bound elsewhere.

    Raises:
        ValueError: if ``method="exact"`` and the hull would be too large.

    >>> bool((covering_radius(torch.eye(3)) - (torch.pi - math.acos(3**-0.5))).abs() < 1e-6)
    True
    """
    if method not in ("auto", "exact", "probes"):
        raise ValueError(f'method must be "auto", "exact" or "probes", got {method!r}')
    rows = as_neurons(weight).detach()
    exact = None if method == "probes" else _exact(normalize(rows.to(wide(rows))))
    if exact is None and method == "exact":
        n, dim = rows.shape
        raise ValueError(f"the convex hull of {n} neurons in {dim} dimensions is too large to be had exactly")
    if exact is None:
        center = deepest_hole(rows, probes, seed)
        exact = angle(center.expand(len(rows), -1), rows.to(center.dtype)).min()
    return exact.to(rows.device, torch.promote_types(rows.dtype, torch.float32))


@torch.no_grad()
def deepest_hole(weight: Float[Tensor, "neurons *dim"], probes: int = 64, seed: int = 0) -> Float[Tensor, " flat"]:
    """The direction farthest from all neurons that is found from ``probes`` random starts.

    >>> deepest_hole(torch.tensor([[1.0, 0.0], [-0.6, 0.8], [-0.6, -0.8]])).round(decimals=2).abs()
    tensor([0.4500, 0.8900], dtype=torch.float64)
    """
    if probes < 1:
        raise ValueError(f"probes must be a number ≥ 1, got {probes!r}")
    rows = as_neurons(weight)
    x = normalize(rows.to(wide(rows)))
    u = uniform(probes, x.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(x)
    for sharpness in (8.0, 64.0, 512.0, 4096.0, 32768.0):

        def nearest(v: Tensor, sharpness: float = sharpness) -> tuple[Tensor, Tensor]:
            unit, lengths = directions(v)
            cos = unit @ x.T
            value = torch.logsumexp(sharpness * cos, 1) / sharpness
            return 2 + value, through_direction(torch.softmax(sharpness * cos, 1) @ x, unit, lengths)

        u = normalize(lbfgs(nearest, u, steps=60, tolerance=1e-8)[0])
    return u[(u @ x.T).amax(1).argmin()]


def _exact(x: Tensor) -> Tensor | None:
    n, dim = x.shape
    p = norm(_shortest_point(x)).clamp_max(1)
    if p > 1e-9:
        return math.pi - arccos(p)
    if int(torch.linalg.matrix_rank(x)) < dim:
        return torch.full_like(p, math.pi / 2)
    if dim > LARGEST_HULL or n * facet_constant(dim - 1) > FACETS:
        return None
    return hole_radii(x).max()


def _shortest_point(x: Tensor) -> Tensor:
    """The point of the convex hull of the rows that is nearest to 0, by non-negative least squares.

    The shortest Σλ_i·x_i with Σλ_i = 1 is, up to its length, that of the least ‖Σλ_i·x_i‖² + (1 − Σλ_i)².
    """
    system = torch.cat([x.T, torch.ones(1, len(x), dtype=x.dtype, device=x.device)]).cpu().double().numpy()
    target = torch.zeros(len(system), dtype=torch.float64)
    target[-1] = 1
    shares = torch.from_numpy(require("scipy.optimize").nnls(system, target.numpy())[0]).to(x)
    return (shares / shares.sum()) @ x
