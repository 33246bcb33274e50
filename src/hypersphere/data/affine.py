"""Random rotation, scaling, shear and translation of images."""

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from .augment import Augmentation, Uniforms, restore_dtype, to_floating_point


class Affine(Augmentation):
    r"""Random affine map x ↦ R(θ)·[[1, k], [0, 1]]·diag(s₁, s₂)·x + t, in pixels from the center of the image.

    All parameters are uniform: the angle θ in ±``rotation`` (radians, from the x axis to the y axis, which points down), the shear k
    in ±``shear``, each factor s in 1 ± ``scale``, and each shift t in ±``shift`` pixels. Interpolation is bilinear, and pixels from
    outside the image have the value ``fill``. Integers are rounded. Shape and dtype do not change.

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
        """Return six numbers: the angle, the shear, two factors and two shifts."""
        return 6

    def __call__(self, batch: Shaped[Tensor, "b c h w"], u: Uniforms) -> Shaped[Tensor, "b c h w"]:
        """Apply the maps. ``grid_sample`` needs the inverse map, which says where each pixel comes from."""
        h, w = batch.shape[2:]
        values = to_floating_point(batch) - self.fill  # grid_sample pads with zeros, so subtract the fill value first
        grid = self._sources(2 * u.double() - 1, h, w).to(values)
        moved = F.grid_sample(values, grid, mode="bilinear", padding_mode="zeros", align_corners=False) + self.fill
        return restore_dtype(moved, batch)

    def _sources(self, v: Float[Tensor, "b draws"], h: int, w: int) -> Float[Tensor, "b h w 2"]:
        """Return the source of every pixel in the coordinates of ``grid_sample``, from −1 to 1; v is uniform in [−1, 1)."""
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
        """Return an extra displacement of each pixel; zero here, overridden by :class:`Elastic`."""
        return torch.zeros(1, h, w, 2, dtype=v.dtype)
