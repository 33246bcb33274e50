"""Random affine maps of images: turned, scaled, sheared and shifted, each image in its own way."""

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from .augment import Augmentation, Uniforms, floating, restored


class Affine(Augmentation):
    r"""Moves the point x of an image, measured in pixels from its centre, to R(θ)·[[1, k], [0, 1]]·diag(s₁, s₂)·x + t.

    Uniform in their ranges: the angle θ in ±``rotation`` (radians, from the x axis to the y axis, which points down), the shear k in
    ±``shear``, each factor s in 1 ± ``scale``, and each shift t in ±``shift`` pixels. Pixels are interpolated bilinearly, those from
    outside the image are ``fill``; integers are rounded. Shape and dtype stay.

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    >>> Affine(rotation=torch.pi / 2)(image, torch.tensor([[1.0, 0.5, 0.5, 0.5, 0.5, 0.5]])).tolist()
    [[[[3, 1], [4, 2]]]]
    """

    def __init__(
        self, rotation: float = 0.0, scale: float = 0.0, shear: float = 0.0, shift: float = 0.0, fill: float = 0.0
    ):
        if min(rotation, shear, shift) < 0 or not 0 <= scale < 1:
            raise ValueError(
                f"rotation, shear and shift must be ≥ 0 and scale in [0, 1), got {rotation}, {shear}, {shift} and {scale}"
            )
        if not math.isfinite(rotation + shear + shift + fill):
            raise ValueError(
                f"rotation, shear, shift and fill must be finite, got {rotation}, {shear}, {shift} and {fill}"
            )
        self.rotation, self.scale, self.shear, self.shift, self.fill = rotation, scale, shear, shift, fill

    def draws(self, shape: torch.Size) -> int:
        """The angle, the shear, and two factors and two shifts along x and y."""
        return 6

    def __call__(self, batch: Shaped[Tensor, "b c h w"], u: Uniforms) -> Shaped[Tensor, "b c h w"]:
        """Where each pixel comes from is the inverse map; ``grid_sample`` fetches it."""
        h, w = batch.shape[2:]
        values = floating(batch) - self.fill  # outside is zero for grid_sample, so zero has to be what fills
        grid = self._sources(2 * u.double() - 1, h, w).to(values)
        moved = F.grid_sample(values, grid, mode="bilinear", padding_mode="zeros", align_corners=False) + self.fill
        return restored(moved, batch)

    def _sources(self, v: Float[Tensor, "b draws"], h: int, w: int) -> Float[Tensor, "b h w 2"]:
        """The source of every pixel in ``grid_sample``'s coordinates, in which the image reaches from −1 to 1; v lies in [−1, 1)."""
        angle, shear = v[:, 0] * self.rotation, v[:, 1] * self.shear
        factor, shift = 1 + v[:, 2:4] * self.scale, v[:, 4:6] * self.shift
        cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
        size = torch.tensor([w, h], dtype=v.dtype)
        turned_back = torch.stack([cos, sin, -sin, cos], 1).reshape(-1, 2, 2)
        straight = torch.stack([torch.ones_like(shear), -shear, zero, zero + 1], 1).reshape(-1, 2, 2)
        inverse = (straight @ turned_back) / factor[:, :, None]
        y, x = torch.meshgrid(*(torch.arange(n, dtype=v.dtype) - (n - 1) / 2 for n in (h, w)), indexing="ij")
        pixels = torch.stack([x, y], -1) + self._bent(v[:, 6:], h, w) - shift[:, None, None, :]
        return torch.einsum("bij,bhwj->bhwi", inverse, pixels) * 2 / size

    def _bent(self, v: Float[Tensor, "b more"], h: int, w: int) -> Float[Tensor, "#b h w 2"]:
        """Where else than at its own place each pixel looks, in pixels: nowhere."""
        return torch.zeros(1, h, w, 2, dtype=v.dtype)
