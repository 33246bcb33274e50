"""Holes between neurons: the largest one (the covering radius), all of them, and how large random ones are (F.9).

A hole is a spherical cap without neurons inside and with neurons on its rim. Holes correspond to the facets of the
convex hull of the directions: the facet's normal is the center of the hole.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from .._extras import require
from ..geometry import accumulation_dtype, angle, arccos, norm, normalize, tangent, uniform
from ..geometry.fast_norms import directions, directions_backward
from .gram_blocks import wide_dtype
from .hyperspherical import as_neurons
from .lbfgs import lbfgs

MAX_HULL_DIMENSIONS = 8  # a convex hull in more dimensions takes too long
MAX_FACETS = 1_000_000  # expected facets up to which the convex hull is computed
RIM_RADIANS = 1e-3  # neurons this much farther than the nearest one still count as the rim of a hole


def covering_radius(
    weight: Float[Tensor, "neurons *dim"],
    probes: int = 64,
    seed: int = 0,
    method: Literal["auto", "exact", "probes"] = "auto",
) -> Float[Tensor, ""]:
    r"""Return α = max_u min_i arccos(u·ŵ_i), the radius of the largest hole between neurons, in radians  (eq. F.36).

    The value is exact (by scipy) in three cases:

    - The neurons lie in an open half space, which is likely for up to twice as many random neurons as dimensions. Then
      α = π − arccos‖p‖ with p the shortest point of their convex hull.
    - The hull contains 0, but the neurons do not span the space. Then α = π/2.
    - Otherwise α is the largest of :func:`hole_radii`, which needs the facets of the hull. This is done in up to 8
      dimensions if at most about a million facets are expected.

    In all other cases it is a lower bound: the deepest hole found by L-BFGS from ``probes`` random directions. For
    hundreds of neurons in three dimensions, 64 probes miss the true radius by up to 0.05. In high dimensions there are
    too many holes to try, and the error is unknown.

    The function is differentiable with respect to ``weight``, so it can be used as a penalty; larger holes are closed.
    For training use ``method="probes"`` with about 16 probes, which is faster than the exact hull.

    Args:
        weight: Neurons in rows.
        probes: Random starts of the lower bound.
        seed: Seed of the random starts.
        method: ``"exact"`` raises an error if the exact value is too expensive, ``"probes"`` always computes the lower
            bound, ``"auto"`` takes the exact value if possible and the bound otherwise.

    Returns:
        The radius, in float32 or better.

    Raises:
        ValueError: If ``method`` is unknown, ``probes`` < 1, or ``method="exact"`` and the hull would be too large.

    >>> bool((covering_radius(torch.eye(3)) - (torch.pi - math.acos(3**-0.5))).abs() < 1e-6)
    True
    >>> penalty = lambda weight: covering_radius(weight, probes=16, method="probes")
    >>> hs.energy.Penalty(torch.nn.Linear(3, 10), penalty, classifier=False)().requires_grad
    True
    """
    if method not in ("auto", "exact", "probes"):
        raise ValueError(f'method must be "auto", "exact" or "probes", got {method!r}')
    rows = as_neurons(weight)
    x = rows.to(wide_dtype(rows))
    hole = None if method == "probes" else _largest_hole(normalize(x.detach()))
    if hole is None and method == "exact":
        n, dim = rows.shape
        raise ValueError(f"the convex hull of {n} neurons in {dim} dimensions is too large to be computed exactly")
    if hole is None:
        center = deepest_hole(rows.detach(), probes, seed)
        hole = center, angle(center.expand(len(x), -1), x.detach()).min()
    center, radius = hole
    if torch.is_grad_enabled() and rows.requires_grad:
        weighted = _rim_average(x, center)
        radius = radius.to(x.device) + weighted - weighted.detach()
    return radius.to(rows.device, accumulation_dtype(rows))


@torch.no_grad()
def deepest_hole(weight: Float[Tensor, "neurons *dim"], probes: int = 64, seed: int = 0) -> Float[Tensor, " flat"]:
    """Return the direction farthest from all neurons that is found from random starts.

    The search minimizes the largest cosine max_i u·ŵ_i. The maximum is smoothed as logsumexp(κ·cos)/κ with growing κ,
    because L-BFGS needs a smooth function; the last κ is sharp enough for an error of about log(N)/κ.

    Args:
        weight: Neurons in rows.
        probes: Number of random starts.
        seed: Seed of the random starts.

    Returns:
        The center of the deepest hole, a unit vector in float64.

    Raises:
        ValueError: If ``probes`` < 1.

    >>> deepest_hole(torch.tensor([[1.0, 0.0], [-0.6, 0.8], [-0.6, -0.8]])).round(decimals=2).abs()
    tensor([0.4500, 0.8900], dtype=torch.float64)
    """
    if probes < 1:
        raise ValueError(f"probes must be a number ≥ 1, got {probes!r}")
    rows = as_neurons(weight)
    x = normalize(rows.to(wide_dtype(rows)))
    u = uniform(probes, x.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(x)
    for sharpness in (8.0, 64.0, 512.0, 4096.0, 32768.0):

        def smoothed_maximum(v: Tensor, sharpness: float = sharpness) -> tuple[Tensor, Tensor]:
            unit, lengths = directions(v)
            cos = unit @ x.T
            value = torch.logsumexp(sharpness * cos, 1) / sharpness
            # L-BFGS stops relative to the value, so the constant 2 keeps it away from 0.
            return 2 + value, directions_backward(torch.softmax(sharpness * cos, 1) @ x, unit, lengths)

        u = normalize(lbfgs(smoothed_maximum, u, steps=60, tolerance=1e-8)[0])
    return u[(u @ x.T).amax(1).argmin()]


def hole_radii(weight: Float[Tensor, "neurons *dim"]) -> Float[Tensor, " holes"]:
    r"""Return the angular radii α_i of all holes, in radians (F.9).

    The largest is the :func:`covering_radius` if 0 lies in the convex hull. Liu (2020) states the radii as chords,
    ρ_i = 2·sin(α_i/2); :func:`hole_moment` sums powers of those. The radii are exact, from the convex hull (scipy),
    which is tractable up to about 8 dimensions.

    Args:
        weight: Neurons in rows.

    Returns:
        One radius per facet of the convex hull.

    Raises:
        ValueError: If there are more than 8 dimensions, or the neurons do not span a hull.

    >>> hole_radii(torch.cat([torch.eye(3), -torch.eye(3)])).shape
    torch.Size([8])
    """
    rows = as_neurons(weight).detach()
    n, dim = rows.shape
    if dim > MAX_HULL_DIMENSIONS or n <= dim:
        raise ValueError(
            f"hole_radii needs more neurons than dimensions, and at most 8 of those, got {n} neurons in {dim} dimensions"
        )
    _, radii = _facet_caps(normalize(rows.double()))
    return radii.to(rows.device, accumulation_dtype(rows))


def hole_moment(weight: Float[Tensor, "neurons *dim"], p: float) -> Float[Tensor, ""]:
    r"""Return Σ_i ρ_i^p over the holes, with ρ_i = 2·sin(α_i/2)  (eq. F.38).

    Args:
        weight: Neurons in rows.
        p: The power, ≥ 0.

    Returns:
        The sum over all holes; their number for p = 0.

    Raises:
        ValueError: If ``p`` is negative, or for the reasons of :func:`hole_radii`.

    >>> hole_moment(torch.cat([torch.eye(3), -torch.eye(3)]), 0)  # an octahedron has eight
    tensor(8.)
    """
    if not (math.isfinite(p) and p >= 0):
        raise ValueError(f"p must be a number ≥ 0, got {p!r}")
    return (2 * torch.sin(hole_radii(weight) / 2)).pow(p).sum()


def cap_constant(d: float) -> float:
    r"""Return κ_d = (1/d)·ψ_{d−1}/ψ_d, with ψ_d the area of the sphere S^d  (eq. F.41).

    A small cap of chord ρ covers the share κ_d·ρ^d of the sphere S^d, which lies in d + 1 dimensions.

    Args:
        d: Dimension of the sphere, > 0; need not be an integer.

    Returns:
        κ_d.

    Raises:
        ValueError: If ``d`` is not positive.

    >>> round(cap_constant(2), 12), round(cap_constant(1) * math.pi, 12)
    (0.25, 1.0)
    """
    if not (math.isfinite(d) and d > 0):
        raise ValueError(f"d must be a number > 0, got {d!r}")
    return math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2)) / (d * math.sqrt(math.pi))


def facet_constant(d: int) -> float:
    r"""Return B_d = 2/(d + 1)·κ_{d²}/κ_d^d: N random neurons on S^d have about B_d·N holes for large N  (eq. F.41, F.42).

    Liu (2020) prints κ_d² in place of κ_{d²}. With that, B_2 would not be 2, as Euler's formula requires.

    Args:
        d: Dimension of the sphere, an integer ≥ 1.

    Returns:
        The expected number of holes per neuron.

    Raises:
        ValueError: If ``d`` is not an integer ≥ 1.

    >>> facet_constant(1), facet_constant(2)
    (1.0, 2.0)
    """
    if d != int(d) or d < 1:
        raise ValueError(f"d must be an integer ≥ 1, got {d!r}")
    return round(2 / (d + 1) * cap_constant(d**2) / cap_constant(d) ** d, 12)


def expected_hole_moment(n: int, d: int, p: float) -> float:
    r"""Return E[Σ_i ρ_i^p] of random neurons on S^d: B_d·κ_d^{−p/d}·Γ(d + p/d)Γ(n + 1)/(Γ(d)Γ(n + p/d))  (lemma 15).

    This is the leading term. The next one is smaller by a factor of the order n^{−2/d}.

    Args:
        n: Number of neurons.
        d: Dimension of the sphere; the neurons have d + 1 dimensions.
        p: The power of :func:`hole_moment`, ≥ 0.

    Returns:
        The expected value of :func:`hole_moment`.

    Raises:
        ValueError: If ``n`` < 1 or ``p`` < 0.

    >>> expected_hole_moment(100, 2, 0)
    200.0
    """
    if n < 1 or not (math.isfinite(p) and p >= 0):
        raise ValueError(f"expected_hole_moment needs n ≥ 1 and p ≥ 0, got n={n!r}, p={p!r}")
    logs = math.lgamma(d + p / d) - math.lgamma(d) + math.lgamma(n + 1) - math.lgamma(n + p / d)
    share = n if p == 0 else math.exp(logs)
    return facet_constant(d) * cap_constant(d) ** (-p / d) * share


def _largest_hole(x: Float[Tensor, "n d"]) -> tuple[Tensor, Tensor] | None:
    """Return the center and the radius of the largest hole, or None if the convex hull is too large."""
    n, dim = x.shape
    shortest = _shortest_hull_point(x)
    length = norm(shortest).clamp_max(1)
    if length > 1e-9:
        return -shortest, math.pi - arccos(length)
    if int(torch.linalg.matrix_rank(x)) < dim:
        return torch.linalg.svd(x).Vh[-1], torch.full_like(length, math.pi / 2)
    if dim > MAX_HULL_DIMENSIONS or n * facet_constant(dim - 1) > MAX_FACETS:
        return None
    centers, radii = _facet_caps(x)
    largest = radii.argmax()
    return centers[largest].to(x), radii[largest]


def _facet_caps(x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "facets d"], Float[Tensor, " facets"]]:
    """Return the center and the angular radius of the cap over each facet of the convex hull, in float64 on the CPU."""
    spatial = require("scipy.spatial")
    try:
        hull = spatial.ConvexHull(x.double().cpu().numpy())
    except spatial.QhullError as error:
        raise ValueError(f"the neurons do not span a convex hull in {x.shape[1]} dimensions") from error
    facets = torch.from_numpy(hull.equations)
    # Qhull splits every facet into simplices. Those with the same plane are one facet.
    plane = facets.round(decimals=9).unique(dim=0, return_inverse=True)[1]
    simplex = torch.zeros(int(plane.max()) + 1, dtype=torch.long).scatter_(0, plane, torch.arange(len(plane)))
    return facets[simplex, :-1], arccos(-facets[simplex, -1].clamp(-1, 1))


def _shortest_hull_point(x: Tensor) -> Tensor:
    """Return the point of the convex hull of the rows that is nearest to 0, by non-negative least squares.

    The shortest Σλ_i·x_i with Σλ_i = 1 is proportional to the one that minimizes ‖Σλ_i·x_i‖² + (1 − Σλ_i)² over λ ≥ 0.
    """
    system, target = _with_unit_sum(x.T)
    shares = require("scipy.optimize").nnls(system.cpu().double().numpy(), target.cpu().double().numpy())[0]
    shares = torch.from_numpy(shares).to(x)
    return (shares / shares.sum()) @ x


def _rim_average(x: Float[Tensor, "n d"], center: Float[Tensor, " d"]) -> Float[Tensor, ""]:
    """Return a weighted mean of the angles between the center of a hole and the neurons on its rim.

    Its gradient is that of the radius. When a neuron of the rim moves, the center moves too, and the radius changes by
    Σ λ_i·dθ_i. The weights λ are those with which the directions from the center to the rim neurons cancel, because
    then moving the center changes nothing to first order.
    """
    center = center.to(x)
    angles = angle(x, center)
    with torch.no_grad():
        rim = angles < angles.min() + RIM_RADIANS
        system, target = _with_unit_sum(normalize(tangent(center, x[rim])).T)
        shares = (torch.linalg.pinv(system) @ target).clamp_min(0)
        shares = shares / shares.sum()
    return shares @ angles[rim]


def _with_unit_sum(columns: Float[Tensor, "d n"]) -> tuple[Float[Tensor, "d+1 n"], Float[Tensor, " d+1"]]:
    """Return the linear system whose solution λ combines the columns to 0 and has the sum 1."""
    system = torch.cat([columns, columns.new_ones(1, columns.shape[1])])
    target = columns.new_zeros(len(system))
    target[-1] = 1
    return system, target
