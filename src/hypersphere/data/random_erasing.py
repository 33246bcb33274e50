"""Random erasing: fill a random rectangle of each image (Zhong et al., 2020)."""

import math

import torch
from jaxtyping import Shaped
from torch import Tensor

from .augment import Augmentation, Uniforms, check_range


class RandomErasing(Augmentation):
    """Fill a random rectangle of each image with ``fill``, with the given probability.

    The area of the rectangle, as a share of the image, is uniform in ``area``. Its ratio of height to width lies in ``ratio``, and the
    logarithm of the ratio is uniform. No side is longer than that of the image. Every position inside the image is equally likely. The
    defaults are those of Zhong et al. (2020), "Random Erasing Data Augmentation".

    >>> RandomErasing(1.0, area=(1.0, 1.0), ratio=(1.0, 1.0), fill=7)(torch.zeros(1, 1, 2, 2), torch.zeros(1, 5)).unique().item()
    7.0
    """

    def __init__(
        self,
        probability: float = 0.5,
        area: tuple[float, float] = (0.02, 0.4),
        ratio: tuple[float, float] = (0.3, 1 / 0.3),
        fill: float = 0.0,
    ):
        if not 0 <= probability <= 1 or not math.isfinite(fill):
            raise ValueError(f"probability must lie in 0 … 1 and fill be finite, got {probability} and {fill}")
        self.area, self.ratio = check_range("area", area, 0, 1), check_range("ratio", ratio, 1e-3, 1e3)
        self.probability, self.fill = probability, fill

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per image: whether to erase, area, ratio, row and column."""
        return 5

    def __call__(self, batch: Shaped[Tensor, "b c h w"], u: Uniforms) -> Shaped[Tensor, "b c h w"]:
        """Return the images, some of them with a filled rectangle."""
        h, w = batch.shape[2:]
        u = u.double()
        share = self.area[0] + (self.area[1] - self.area[0]) * u[:, 1]
        low, high = map(math.log, self.ratio)
        ratio = (low + (high - low) * u[:, 2]).exp()
        height = (share * h * w * ratio).sqrt().round().clamp(max=h)
        width = (share * h * w / ratio).sqrt().round().clamp(max=w)
        top, left = (u[:, 3] * (h - height + 1)).floor(), (u[:, 4] * (w - width + 1)).floor()
        rows, columns = torch.arange(h), torch.arange(w)
        in_rows = (rows >= top[:, None]) & (rows < (top + height)[:, None])
        in_columns = (columns >= left[:, None]) & (columns < (left + width)[:, None])
        is_erased = (u[:, 0] < self.probability)[:, None, None, None]
        mask = in_rows[:, None, :, None] & in_columns[:, None, None, :] & is_erased
        return batch.masked_fill(mask.to(batch.device), self.fill)
