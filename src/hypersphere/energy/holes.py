"""Holes between neurons: the facets of their convex hull, and how many and how large random ones are (F.9)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from .._extras import require
from ..geometry import arccos, normalize
from .hyperspherical import as_neurons

LARGEST_HULL = 8  # dimensions up to which a convex hull is tractable


def hole_radii(weight: Float[Tensor, "neurons *dim"]) -> Float[Tensor, " holes"]:
    r"""α_i, the angular radii of the spherical caps over the facets of the convex hull, in radians (F.9).

    A cap holds neurons on its rim only. The largest radius is the :func:`covering_radius`, if 0 is in the hull; Liu (2020) states the radii
    as chords, ρ_i = 2·sin(α_i/2), and :func:`hole_moment` sums powers of those. Exact, by the convex hull (scipy), which
    is tractable up to about 8 dimensions.

    Raises:
        ValueError: if there are more than 8 dimensions, or the neurons do not span a hull.

    >>> hole_radii(torch.cat([torch.eye(3), -torch.eye(3)])).shape
    torch.Size([8])
    """
    rows = as_neurons(weight).detach()
    n, dim = rows.shape
    if dim > LARGEST_HULL or n <= dim:
        raise ValueError(
            f"hole_radii needs more neurons than dimensions, and at most 8 of those, got {n} neurons in {dim} dimensions"
        )
    spatial = require("scipy.spatial")
    x = normalize(rows.double())
    try:
        hull = spatial.ConvexHull(x.cpu().numpy())
    except spatial.QhullError as error:
        raise ValueError(f"the neurons do not span a convex hull in {dim} dimensions") from error
    facets = torch.from_numpy(hull.equations)
    kept = facets.round(decimals=9).unique(dim=0, return_inverse=True)[1]  # coplanar simplices are one facet
    one = torch.zeros(int(kept.max()) + 1, dtype=torch.long).scatter_(0, kept, torch.arange(len(kept)))
    return arccos(-facets[one, -1].clamp(-1, 1)).to(rows.device, torch.promote_types(rows.dtype, torch.float32))


def hole_moment(weight: Float[Tensor, "neurons *dim"], p: float) -> Float[Tensor, ""]:
    r"""Σ_i ρ_i^p over the holes, ρ_i = 2·sin(α_i/2)  (eq. F.38).

    >>> hole_moment(torch.cat([torch.eye(3), -torch.eye(3)]), 0)  # an octahedron has eight
    tensor(8.)
    """
    if not (math.isfinite(p) and p >= 0):
        raise ValueError(f"p must be a number ≥ 0, got {p!r}")
    return (2 * torch.sin(hole_radii(weight) / 2)).pow(p).sum()


def cap_constant(d: float) -> float:
    r"""κ_d = (1/d)·ψ_{d−1}/ψ_d, with ψ_d the area of the sphere S^d  (eq. F.41).

    A small cap of chord ρ has the share κ_d·ρ^d of the sphere S^d, which lies in d + 1 dimensions.

    >>> round(cap_constant(2), 12), round(cap_constant(1) * math.pi, 12)
    (0.25, 1.0)
    """
    if not (math.isfinite(d) and d > 0):
        raise ValueError(f"d must be a number > 0, got {d!r}")
    return math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2)) / (d * math.sqrt(math.pi))


def facet_constant(d: int) -> float:
    r"""B_d = 2/(d + 1)·κ_{d²}/κ_d^d: N random neurons on S^d have about B_d·N holes, for large N  (eq. F.41, F.42).

    Liu (2020) prints κ_d² for κ_{d²}, with which B_2 would not be the 2 that Euler's formula gives.

    >>> facet_constant(1), facet_constant(2)
    (1.0, 2.0)
    """
    if d != int(d) or d < 1:
        raise ValueError(f"d must be an integer ≥ 1, got {d!r}")
    return round(2 / (d + 1) * cap_constant(d**2) / cap_constant(d) ** d, 12)


def expected_hole_moment(n: int, d: int, p: float) -> float:
    r"""E[Σ_i ρ_i^p] of ``n`` random neurons on S^d, B_d·κ_d^{−p/d}·Γ(d + p/d)Γ(n + 1)/(Γ(d)Γ(n + p/d))  (lemma 15).

    It is the leading term; what is left out is of the order n^{−2/d} of it. Compare with :func:`hole_moment` of neurons in
    d + 1 dimensions.

    >>> expected_hole_moment(100, 2, 0)
    200.0
    """
    if n < 1 or not (math.isfinite(p) and p >= 0):
        raise ValueError(f"expected_hole_moment needs n ≥ 1 and p ≥ 0, got n={n!r}, p={p!r}")
    logs = math.lgamma(d + p / d) - math.lgamma(d) + math.lgamma(n + 1) - math.lgamma(n + p / d)
    share = n if p == 0 else math.exp(logs)
    return facet_constant(d) * cap_constant(d) ** (-p / d) * share
