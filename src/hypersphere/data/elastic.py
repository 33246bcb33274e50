"""Random smooth deformations of images, similar to variations of handwriting."""

import torch
from jaxtyping import Float
from torch import Tensor

from .augment import Affine


class Elastic(Affine):
    r"""A smooth deformation followed by an affine map, in one interpolation.

    The deformation reads the pixel x from the position x + Σ_ij B_i(x₂)·B_j(x₁)·φ_ij. B are uniform cubic B-splines over the
    image, and the ``points``×``points`` control vectors φ are uniform in ±``bend`` pixels (free-form deformation, Rueckert et
    al. 1999). Few points deform the whole image, many points deform single strokes. A pixel moves by about ``bend``/3.

    Args:
        bend: Maximum displacement of a control point along an axis, in pixels.
        points: Number of control points along an axis, four or more.
        rotation, scale, shear, shift, fill: Arguments of the affine map, as in :class:`Affine`.

    >>> image, u = torch.eye(6)[None, None], torch.full((1, 6 + 2 * 16), 0.5)
    >>> torch.allclose(Elastic(bend=3.0)(image, u), image, atol=1e-6)  # random numbers of 0.5 give the identity
    True
    """

    def __init__(
        self,
        bend: float = 2.0,
        points: int = 4,
        rotation: float = 0.0,
        scale: float = 0.0,
        shear: float = 0.0,
        shift: float = 0.0,
        fill: float = 0.0,
    ):
        super().__init__(rotation, scale, shear, shift, fill)
        if not 0 <= bend < float("inf") or points < 4:
            raise ValueError(f"bend must be a finite number ≥ 0 and points ≥ 4, got {bend} and {points}")
        self.bend, self.points = bend, points

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per image: those of the affine map and two per control point."""
        return super().draws(shape) + 2 * self.points**2

    def _compute_displacement(self, v: Float[Tensor, "b more"], h: int, w: int) -> Float[Tensor, "b h w 2"]:
        vectors = self.bend * v.reshape(-1, self.points, self.points, 2)
        return torch.einsum(
            "hi,bijc,wj->bhwc", self._evaluate_splines(h).to(v), vectors, self._evaluate_splines(w).to(v)
        )

    def _evaluate_splines(self, n: int) -> Float[Tensor, "n points"]:
        """Return B_i at the centers of n pixels. Each row has four nonzero values and sums to 1."""
        position = (torch.arange(n, dtype=torch.float64) + 0.5) / n * (self.points - 3)
        distance = (
            position[:, None] - torch.arange(-1, self.points - 1)
        ).abs()  # from the center of each spline, in knots
        inner = 2 / 3 - distance.square() + distance.pow(3) / 2
        return torch.where(distance < 1, inner, (2 - distance).clamp(min=0).pow(3) / 6)
