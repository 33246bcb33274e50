"""Random resized crops (Szegedy et al., 2015)."""

import math

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional as F

from .augment import Augmentation, Uniforms, check_range, restore_dtype, to_floating_point


class ResizedCrop(Augmentation):
    """A random crop of random area and aspect ratio, resized bilinearly to ``size`` = (height, width).

    The area of the crop, as a share of the image, is uniform in ``area``. Its ratio of width to height, divided by that of the image,
    lies in ``ratio``, and the logarithm of the ratio is uniform. No side is longer than that of the image. ``size=None`` keeps the size
    of the image. The defaults of ``area`` and ``ratio`` are those of Szegedy et al. (2015), "Going Deeper with Convolutions". They
    change images strongly; use an ``area`` near 1 for faces.

    >>> image = torch.arange(16.0).reshape(1, 1, 4, 4)
    >>> ResizedCrop((2, 2), area=(0.25, 0.25), ratio=(1.0, 1.0))(image, torch.zeros(1, 4)).flatten().tolist()
    [0.0, 1.0, 4.0, 5.0]
    """

    def __init__(
        self,
        size: tuple[int, int] | None = None,
        area: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
    ):
        if size is not None and (len(size) != 2 or min(size) < 1):
            raise ValueError(f"size must be (height, width), both ≥ 1, or None, got {size}")
        self.size = size
        self.area, self.ratio = check_range("area", area, 1e-6, 1), check_range("ratio", ratio, 1e-3, 1e3)

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per image: area, ratio, row and column."""
        return 4

    def __call__(self, batch: Shaped[Tensor, "b c h w"], u: Uniforms) -> Shaped[Tensor, "b c _ _"]:
        """Return the crops."""
        out_height, out_width = batch.shape[2:] if self.size is None else self.size
        u = u.double()
        share = self.area[0] + (self.area[1] - self.area[0]) * u[:, 0]
        low, high = map(math.log, self.ratio)
        ratio = (low + (high - low) * u[:, 1]).exp()
        # Height and width of the crop are shares of the sides of the image.
        height, width = (share / ratio).sqrt().clamp(max=1), (share * ratio).sqrt().clamp(max=1)
        rows = _compute_pixel_centers(out_height, height, u[:, 2] * (1 - height))
        columns = _compute_pixel_centers(out_width, width, u[:, 3] * (1 - width))
        size = (len(batch), out_height, out_width)
        grid = torch.stack([columns[:, None, :].expand(size), rows[:, :, None].expand(size)], -1)
        values = to_floating_point(batch)
        crops = F.grid_sample(values, grid.to(values), mode="bilinear", padding_mode="border", align_corners=False)
        return restore_dtype(crops, batch)


def _compute_pixel_centers(count: int, length: Tensor, start: Tensor) -> Tensor:
    """Return the centers of ``count`` pixels that divide the share [start, start + length] of a side, which lies in −1 … 1."""
    centers = (torch.arange(count, dtype=length.dtype) + 0.5) / count
    return 2 * (start[:, None] + length[:, None] * centers) - 1
