"""Fixed class prototypes: points of least energy, optionally arranged in groups of classes."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from .solver import minimize_energy, smallest_angle


def place_prototypes(
    num_classes: int,
    dim: int,
    s: float = 1,
    groups: Sequence[int] | None = None,
    spread: float = 0.5,
    *,
    seed: int = 0,
) -> Float[Tensor, "c d"]:
    r"""Return one unit vector per class with the least energy found, or in two levels if the classes form groups.

    Without ``groups`` the points are those of :func:`minimize_energy`; up to d + 1 classes form a simplex. With groups,
    the centers c_g of the groups have the least energy. The members of each group are placed around their center:

    .. math:: w = \cos ρ·c_g + \sin ρ·u, \quad ρ = \text{spread}·\tfrac12\min_{g≠h} ∠(c_g, c_h)

    The vectors u have the least energy on the unit sphere of the d − 1 dimensions orthogonal to c_g. The angle between
    two members of a group is at most 2ρ, and between members of different groups at least (1 − spread)·∠. So with
    ``spread`` ≤ 0.5 every class is nearest to its own group. Use groups if confusing classes of different groups costs
    more.

    Args:
        num_classes: Number of classes C, at least 2.
        dim: Dimension d; at least 3 with groups.
        s: Power of the energy.
        groups: Group of each class, C integers. A single member is placed at the center of its group.
        spread: Angle between members and their center, in (0, 1), as a share of half of the smallest angle between centers.
        seed: Seed of the search.

    Returns:
        The prototypes, one per row, in the default dtype.

    Raises:
        ValueError: If a number is out of its range, or ``groups`` does not have C entries.

    >>> w = place_prototypes(4, 3, groups=[0, 0, 1, 1])
    >>> cos = (w @ w.T)[0]
    >>> cos[1] > cos[2:].max()  # nearer to the class of its group than to those of the other
    tensor(True)
    """
    if num_classes < 2 or dim < (2 if groups is None else 3):
        raise ValueError(f"num_classes must be ≥ 2 and dim ≥ {2 if groups is None else 3}, got {num_classes} and {dim}")
    if not 0 < spread < 1:
        raise ValueError(f"spread must lie in (0, 1), got {spread!r}")
    if groups is None:
        return _find_points(num_classes, dim, s, seed).to(torch.get_default_dtype())
    if len(groups) != num_classes:
        raise ValueError(f"groups must have one integer for each of the {num_classes} classes, got {len(groups)}")
    names = sorted(set(groups))
    centers = _find_points(len(names), dim, s, seed)
    reach = math.pi if len(names) == 1 else float(smallest_angle(centers))
    rho = spread * reach / 2
    rows = torch.empty(num_classes, dim, dtype=torch.float64)
    for number, name in enumerate(names):
        members = torch.tensor([i for i, group in enumerate(groups) if group == name])
        center = centers[number]
        if len(members) == 1:
            rows[members] = center
            continue
        # An orthonormal basis of the directions orthogonal to the center.
        tangent = torch.linalg.qr(torch.cat([center[:, None], torch.eye(dim, dtype=torch.float64)], 1)).Q[:, 1:]
        offsets = _find_points(len(members), dim - 1, s, seed + number + 1) @ tangent.T
        rows[members] = math.cos(rho) * center + math.sin(rho) * offsets
    return rows.to(torch.get_default_dtype())


def _find_points(count: int, dim: int, s: float, seed: int) -> Float[Tensor, "n d"]:
    """Return points of least energy; a single point lies on the first axis."""
    if count == 1:
        return torch.eye(1, dim, dtype=torch.float64)
    if count <= dim + 1:  # the simplex is the minimum of every decreasing convex kernel
        centered = torch.eye(count, dtype=torch.float64) - 1 / count
        basis = torch.linalg.qr(centered[:, :-1]).Q
        generator = torch.Generator().manual_seed(seed)
        rotation = torch.linalg.qr(torch.randn(dim, count - 1, dtype=torch.float64, generator=generator)).Q
        return math.sqrt(count / (count - 1)) * basis @ rotation.T
    return minimize_energy(count, dim, s, seed=seed)[0]
