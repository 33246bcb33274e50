"""Arrangements of points with a rotational symmetry of finite order, described by one point of each orbit."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import uniform

ROTATION_ORDERS = (2, 3, 4, 5, 6)


@dataclass(frozen=True)
class PointSymmetry:
    r"""Orbits y, Ry, …, R^{k−1}y of an orthogonal ``rotation`` R with R^k = 1, and ``fixed`` points with Rp = p.

    Most of the best known arrangements for Tammes' and Thomson's problems have such a symmetry. With a symmetry of order
    k, only one in k points is unknown.

    >>> quarter = PointSymmetry(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), 4, torch.empty(0, 2))
    >>> quarter.expand(torch.tensor([[[1.0, 0.0]]]))
    tensor([[[ 1.,  0.],
             [ 0.,  1.],
             [-1.,  0.],
             [ 0., -1.]]])
    """

    rotation: Float[Tensor, "dim dim"]
    order: int
    fixed: Float[Tensor, "fixed dim"]

    def expand(self, y: Float[Tensor, "batch m dim"]) -> Float[Tensor, "batch n dim"]:
        """Return all n = k·m + fixed points: y, Ry, …, R^{k−1}y, then the fixed points."""
        return torch.cat([self.images(y), self.fixed.to(y).expand(len(y), -1, -1)], 1) if self.order > 1 else y

    def images(self, y: Float[Tensor, "batch m dim"]) -> Float[Tensor, "batch km dim"]:
        """Return y, Ry, …, R^{k−1}y. Displacements of y are mapped to displacements of the images in the same way."""
        images = [y]
        for _ in range(self.order - 1):
            images.append(images[-1] @ self.rotation.to(y).mT)
        return torch.cat(images, 1) if self.order > 1 else y


def no_symmetry(dim: int) -> PointSymmetry:
    """Return the trivial symmetry: every point is its own orbit."""
    return PointSymmetry(torch.eye(dim, dtype=torch.float64), 1, torch.empty(0, dim, dtype=torch.float64))


def rotation_symmetries(n: int, dim: int, half_space: bool) -> list[PointSymmetry]:
    r"""Return the symmetries of order 2 to 6 that n points can have: rotations in all planes (1 2), (3 4), … at once.

    In odd dimensions one axis remains fixed, and one or both of its ends can be points. In half space the points are
    lines, and only odd orders are used, because no power of their rotations is −1.

    >>> [(symmetry.order, len(symmetry.fixed)) for symmetry in rotation_symmetries(50, 3, False)]
    [(2, 0), (2, 2), (3, 2), (4, 2), (5, 0), (6, 2)]
    """
    ends = (0,) if dim % 2 == 0 else (0, 1) if half_space else (0, 1, 2)
    return [
        _make_symmetry(order, dim, fixed)
        for order in ROTATION_ORDERS
        for fixed in ends
        if (n - fixed) % order == 0 and n > fixed and (order % 2 or not half_space)
    ]


def _make_symmetry(order: int, dim: int, fixed: int) -> PointSymmetry:
    cos, sin = math.cos(2 * math.pi / order), math.sin(2 * math.pi / order)
    plane = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
    axis = torch.ones(1, 1, dtype=torch.float64)
    ends = torch.zeros(2, dim, dtype=torch.float64)
    ends[:, -1] = torch.tensor([1.0, -1.0])
    return PointSymmetry(torch.block_diag(*[plane] * (dim // 2), *[axis] * (dim % 2)), order, ends[:fixed])


def draw_orbits(
    batch: int, n: int, symmetry: PointSymmetry, generator: torch.Generator
) -> Float[Tensor, "batch m dim"]:
    """Return one random point per orbit of n points."""
    dim = len(symmetry.rotation)
    m = (n - len(symmetry.fixed)) // symmetry.order
    return uniform(batch * m, dim, generator=generator, dtype=torch.float64).view(batch, m, dim)


def self_entries(entries: Float[Tensor, "batch signs m n"]) -> Float[Tensor, "batch signs m"]:
    """Return a view of the entries of each point with itself. The m points are the first of the n points."""
    return entries[..., : entries.shape[2]].diagonal(dim1=2, dim2=3)
