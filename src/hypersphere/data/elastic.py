"""Random smooth bending of images beside an affine map, as one hand writes otherwise than another."""

import torch
from jaxtyping import Float
from torch import Tensor

from .affine import Affine


class Elastic(Affine):
    r"""An affine map after a smooth bend of the image, in one interpolation.

    The bend looks for the pixel x at x + Σ_ij B_i(x₂)·B_j(x₁)·φ_ij, with uniform cubic B-splines B over the image and
    ``points``×``points`` control vectors φ uniform in ±``bend`` pixels (free-form deformation, Rueckert et al. 1999). Few points bend
    the whole image, many single strokes; a pixel moves by about a third of ``bend``.

    Args:
        bend: largest displacement of a control point along an axis, in pixels.
        points: control points along an axis, four or more.
        rotation, scale, shear, shift, fill: of the affine map, as in :class:`Affine`.

    >>> image, u = torch.eye(6)[None, None], torch.full((1, 6 + 2 * 16), 0.5)
    >>> torch.allclose(Elastic(bend=3.0)(image, u), image, atol=1e-6)  # the middle of every range moves nothing
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
        """Those of the affine map, and two for each control point."""
        return super().draws(shape) + 2 * self.points**2

    def _bent(self, v: Float[Tensor, "b more"], h: int, w: int) -> Float[Tensor, "b h w 2"]:
        vectors = self.bend * v.reshape(-1, self.points, self.points, 2)
        return torch.einsum("hi,bijc,wj->bhwc", self._splines(h).to(v), vectors, self._splines(w).to(v))

    def _splines(self, n: int) -> Float[Tensor, "n points"]:
        """B_i at the centres of n pixels: of every pixel four are not zero, and their sum is one."""
        place = (torch.arange(n, dtype=torch.float64) + 0.5) / n * (self.points - 3)
        away = (place[:, None] - torch.arange(-1, self.points - 1)).abs()  # in knots from the middle of each spline
        inner = 2 / 3 - away.square() + away.pow(3) / 2
        return torch.where(away < 1, inner, (2 - away).clamp(min=0).pow(3) / 6)
