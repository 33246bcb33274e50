"""How evenly directions cover the sphere: separation, covering radius and holes (F.9)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._extras import require
from ..geometry import angle, normalize, uniform
from .close import wide
from .hyperspherical import as_neurons
from .lbfgs import lbfgs
from .pairs import ENTRIES


def separation(weight: Float[Tensor, "neurons *dim"]) -> Float[Tensor, ""]:
    r"""ψ = min_{i≠j} arccos(ŵ_i·ŵ_j), the smallest angle between two neurons, in radians  (eq. F.37).

    >>> separation(torch.eye(3))
    tensor(1.5708)
    """
    return nearest_pairs(weight, 1)[1][0]


@torch.no_grad()
def nearest_pairs(
    weight: Float[Tensor, "neurons *dim"], count: int = 5
) -> tuple[Int[Tensor, "count 2"], Float[Tensor, " count"]]:
    """The ``count`` pairs of neurons with the smallest angles, nearest first, and the angles; fewer if there are fewer pairs.

    The Gram matrix is formed in float64 a chunk at a time. A zero row is at π/2 from all others.

    >>> nearest_pairs(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.5]]), 1)[0]
    tensor([[0, 2]])
    """
    if count < 1:
        raise ValueError(f"count must be a number ≥ 1, got {count!r}")
    rows = as_neurons(weight)
    x = normalize(rows.to(wide(rows)))
    n, chunk = len(x), max(64, ENTRIES // len(x))
    best, where = x.new_empty(0), torch.empty(0, dtype=torch.long, device=x.device)
    for start in range(0, n, chunk):
        cos = x[start : start + chunk] @ x.T
        i = torch.arange(start, start + len(cos), device=x.device)[:, None]
        cos.masked_fill_(i >= torch.arange(n, device=x.device), -2)
        values, index = cos.flatten().topk(min(count, cos.numel()))
        best, where = torch.cat([best, values]), torch.cat([where, index + start * n])
    top = best.topk(min(count, n * (n - 1) // 2)).indices
    pairs = torch.stack([where[top] // n, where[top] % n], 1)
    angles = angle(x[pairs[:, 0]], x[pairs[:, 1]])
    order = angles.argsort()
    return pairs[order], angles[order].to(torch.promote_types(rows.dtype, torch.float32))


def covering_radius(weight: Float[Tensor, "neurons *dim"], probes: int = 64, seed: int = 0) -> Float[Tensor, ""]:
    r"""α = max_u min_i arccos(u·ŵ_i), the farthest any direction is from its nearest neuron, in radians  (eq. F.36).

    An estimate from below: from ``probes`` random directions one climbs to the centre of a hole, and the deepest hole
    found is returned. In three dimensions and up to a hundred neurons it agrees with the exact value of
    :func:`hole_radii` to 10⁻³; in high dimensions, where holes are too many to try, it is a lower bound only.

    >>> bool((covering_radius(torch.eye(3)) - (torch.pi - math.acos(3**-0.5))).abs() < 1e-3)
    True
    """
    center = deepest_hole(weight, probes, seed)
    x = as_neurons(weight)
    return angle(center.expand(len(x), -1), x.to(center.dtype)).min().to(torch.promote_types(x.dtype, torch.float32))


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
            lengths = torch.linalg.vector_norm(v, dim=1, keepdim=True)
            unit = v / lengths
            cos = unit @ x.T
            value = torch.logsumexp(sharpness * cos, 1) / sharpness
            gradient = torch.softmax(sharpness * cos, 1) @ x
            return 2 + value, (gradient - unit * (gradient * unit).sum(1, keepdim=True)) / lengths

        u = normalize(lbfgs(nearest, u, steps=60, tolerance=1e-8)[0])
    return u[(u @ x.T).amax(1).argmin()]


def hole_radii(weight: Float[Tensor, "neurons *dim"]) -> Float[Tensor, " holes"]:
    r"""ρ_i = 2·sin(α_i/2) of the spherical caps over the facets of the convex hull, which hold no neuron inside (F.9).

    Exact, by the convex hull (scipy), which is tractable up to about 8 dimensions. The largest is the covering radius α:
    ρ = 2·sin(α/2)  (eq. F.39).

    >>> hole_radii(torch.cat([torch.eye(3), -torch.eye(3)])).shape
    torch.Size([8])
    """
    rows = as_neurons(weight).detach()
    n, dim = rows.shape
    if dim > 8 or n <= dim:
        raise ValueError(
            f"hole_radii needs more neurons than dimensions, and at most 8 of those, got {n} neurons in {dim} dimensions"
        )
    spatial = require("scipy.spatial")
    x = normalize(rows.double())
    try:
        hull = spatial.ConvexHull(x.cpu().numpy())
    except spatial.QhullError as error:
        raise ValueError(f"the neurons do not span a convex hull in {dim} dimensions") from error
    facets = torch.from_numpy(hull.equations).round(decimals=9).unique(dim=0)  # coplanar simplices are one facet
    return (2 + 2 * facets[:, -1]).clamp_min(0).sqrt().to(rows.device, torch.promote_types(rows.dtype, torch.float32))


def hole_moment(weight: Float[Tensor, "neurons *dim"], p: float) -> Float[Tensor, ""]:
    r"""Σ_i ρ_i^p over the holes  (eq. F.38).

    >>> hole_moment(torch.cat([torch.eye(3), -torch.eye(3)]), 0)  # an octahedron has eight
    tensor(8.)
    """
    if not (math.isfinite(p) and p >= 0):
        raise ValueError(f"p must be a number ≥ 0, got {p!r}")
    return hole_radii(weight).pow(p).sum()
