"""Cropping, colour and size of images as tensors: the same 8-bit result for one image and for a batch, on every device."""

from typing import Literal

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional as F

INTERPOLATIONS = ("bilinear", "bicubic", "nearest")


def window(images: Shaped[Tensor, "*n c h w"], box: tuple[int, int, int, int]) -> Shaped[Tensor, "*n c _ _"]:
    """The part of the images from column x_1 and row y_1 up to, without them, x_2 and y_2; it must lie inside.

    >>> window(torch.arange(12).reshape(1, 3, 4), (1, 0, 3, 2)).tolist()
    [[[1, 2], [5, 6]]]
    """
    left, top, right, bottom = box
    height, width = images.shape[-2:]
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ValueError(f"the crop box must lie inside the image of {width}×{height} pixels (x, y), got {box}")
    return images[..., top:bottom, left:right]


def centre(images: Shaped[Tensor, "*n c h w"], crop: Literal["square"] | int) -> Shaped[Tensor, "*n c _ _"]:
    """The central ``crop``×``crop`` of the images, or their largest central square."""
    height, width = images.shape[-2:]
    side = min(height, width) if crop == "square" else crop
    if side > min(height, width):
        raise ValueError(f"crop must be at most {min(height, width)}, the image's shorter side, got {side}")
    left, top = (width - side) // 2, (height - side) // 2
    return window(images, (left, top, left + side, top + side))


def recolour(images: Shaped[Tensor, "*n _ h w"], channels: int) -> Shaped[Tensor, "*n c h w"]:
    """Grey repeated three times, or the luma of RGB: 0.299 R + 0.587 G + 0.114 B (ITU-R 601), in integers as Pillow has it.

    >>> recolour(torch.tensor([255, 0, 0], dtype=torch.uint8).reshape(3, 1, 1), 1).item()
    76
    """
    found = images.shape[-3]
    if found == channels:
        return images
    if (found, channels) == (1, 3):
        return images.expand(*images.shape[:-3], 3, *images.shape[-2:])
    if (found, channels) != (3, 1):
        raise ValueError(f"images must have {channels} channels (1 and 3 are turned into each other), got {found}")
    if images.is_floating_point():
        weight = images.new_tensor([0.299, 0.587, 0.114]).reshape(3, 1, 1)
        return (images * weight).sum(-3, keepdim=True)
    weight = torch.tensor([19595, 38470, 7471], dtype=torch.int32, device=images.device).reshape(3, 1, 1)
    return ((images.to(torch.int32) * weight).sum(-3, keepdim=True).add(0x8000) >> 16).to(images.dtype)


def resized(
    images: Shaped[Tensor, "*n c _ _"],
    size: tuple[int, int],
    how: Literal["stretch", "cover", "contain"] = "stretch",
    interpolation: Literal["bilinear", "bicubic", "nearest"] = "bilinear",
    fill: float = 0.0,
) -> Shaped[Tensor, "*n c h w"]:
    """Images of ``size`` = (height, width).

    8-bit images are resized in integers on the CPU, wherever they are. Bilinear results are within two grey levels of Pillow's;
    bicubic ones are so on average and differ more beside sharp edges, where torch and Pillow clamp the overshoot at different
    times. Floating-point images, in [0, 1], are resized on their device and stay differentiable.
    """
    height, width = images.shape[-2:]
    if (height, width) == tuple(size):
        return images
    if how == "stretch":
        return _interpolated(images, size, interpolation)
    scales = size[0] / height, size[1] / width
    scale = max(scales) if how == "cover" else min(scales)
    inner = tuple(
        side if s == scale else max(round(length * scale), 1)
        for side, s, length in zip(size, scales, (height, width), strict=True)
    )
    images = _interpolated(images, (inner[0], inner[1]), interpolation)
    top, left = (abs(inner[i] - size[i]) // 2 for i in range(2))
    if how == "cover":
        return images[..., top : top + size[0], left : left + size[1]]
    value = fill if images.is_floating_point() else round(255 * fill)
    return F.pad(images, (left, size[1] - inner[1] - left, top, size[0] - inner[0] - top), value=value)


def _interpolated(images: Tensor, size: tuple[int, int], interpolation: str) -> Tensor:
    if interpolation == "nearest":  # the pixel under each centre, in exact integers
        rows, columns = (
            (2 * torch.arange(new, device=images.device) + 1) * old // (2 * new)
            for new, old in zip(size, images.shape[-2:], strict=True)
        )
        return images[..., rows[:, None], columns]
    batch = images if images.ndim == 4 else images[None]
    if images.is_floating_point():
        result = F.interpolate(batch, size, mode=interpolation, antialias=True).clamp(
            0, 1
        )  # the cubic kernel overshoots
    else:
        result = F.interpolate(batch.cpu(), size, mode=interpolation, antialias=True).to(images.device)
    return result if images.ndim == 4 else result[0]
