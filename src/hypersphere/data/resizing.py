"""Crop pictures, change their channels, and resize them, as tensors. 8-bit results are the same for single pictures and batches."""

import math
from typing import Literal

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional as F

MAX_COVER_EXCESS = 4  # longest side before "cover" cuts it, in sides of the target
INTERPOLATIONS = ("bilinear", "bicubic", "nearest")


def crop_box(images: Shaped[Tensor, "*n c h w"], box: tuple[int, int, int, int]) -> Shaped[Tensor, "*n c _ _"]:
    """Return columns x_1 … x_2 − 1 and rows y_1 … y_2 − 1 of the images.

    Args:
        images: One image or a batch.
        box: (x_1, y_1, x_2, y_2), inside the images.

    Raises:
        ValueError: The box does not lie inside the images.

    >>> crop_box(torch.arange(12).reshape(1, 3, 4), (1, 0, 3, 2)).tolist()
    [[[1, 2], [5, 6]]]
    """
    left, top, right, bottom = box
    height, width = images.shape[-2:]
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ValueError(f"the crop box must lie inside the image of {width}×{height} pixels (x, y), got {box}")
    return images[..., top:bottom, left:right]


def crop_center(images: Shaped[Tensor, "*n c h w"], crop: Literal["square"] | int) -> Shaped[Tensor, "*n c _ _"]:
    """Return the central ``crop``×``crop`` of the images, or their largest central square.

    Raises:
        ValueError: The crop is larger than the shorter side.
    """
    height, width = images.shape[-2:]
    side = min(height, width) if crop == "square" else crop
    if side > min(height, width):
        raise ValueError(f"crop must be at most {min(height, width)}, the image's shorter side, got {side}")
    left, top = (width - side) // 2, (height - side) // 2
    return crop_box(images, (left, top, left + side, top + side))


def set_channels(images: Shaped[Tensor, "*n _ h w"], channels: int) -> Shaped[Tensor, "*n c h w"]:
    """Convert between gray and RGB.

    Gray is repeated three times. RGB becomes its luma 0.299 R + 0.587 G + 0.114 B (ITU-R 601), with Pillow's integer arithmetic
    for 8-bit images.

    Args:
        images: One image or a batch.
        channels: Number of channels of the result.

    Raises:
        ValueError: The images have another number of channels than 1 and 3.

    >>> set_channels(torch.tensor([255, 0, 0], dtype=torch.uint8).reshape(3, 1, 1), 1).item()
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


def resize_images(
    images: Shaped[Tensor, "*n c _ _"],
    size: tuple[int, int],
    how: Literal["stretch", "cover", "contain"] = "stretch",
    interpolation: Literal["bilinear", "bicubic", "nearest"] = "bilinear",
    fill: float = 0.0,
) -> Shaped[Tensor, "*n c h w"]:
    """Resize images to ``size`` = (height, width).

    8-bit images are resized in integers on the CPU. Bilinear results differ from those of Pillow by at most two gray levels.
    Bicubic results differ by two gray levels on average, and by more near sharp edges, because torch and Pillow clamp the
    overshoot at different steps. Floating-point images, in [0, 1], are resized on their device and stay differentiable.

    Args:
        images: One image or a batch.
        size: (height, width) of the result.
        how: "stretch", "cover" or "contain", as in :class:`~hypersphere.data.PicturePreprocessing`.
        interpolation: "bilinear", "bicubic" or "nearest".
        fill: The pixel value, in [0, 1], with which "contain" fills.
    """
    if how == "cover":
        images = _crop_excess(images, size)
    height, width = images.shape[-2:]
    if (height, width) == tuple(size):
        return images
    if how == "stretch":
        return _interpolate(images, size, interpolation)
    scales = size[0] / height, size[1] / width
    scale = max(scales) if how == "cover" else min(scales)
    inner = tuple(
        side if s == scale else max(round(length * scale), 1)
        for side, s, length in zip(size, scales, (height, width), strict=True)
    )
    images = _interpolate(images, (inner[0], inner[1]), interpolation)
    top, left = (abs(inner[i] - size[i]) // 2 for i in range(2))
    if how == "cover":
        return images[..., top : top + size[0], left : left + size[1]]
    value = fill if images.is_floating_point() else round(255 * fill)
    return F.pad(images, (left, size[1] - inner[1] - left, top, size[0] - inner[0] - top), value=value)


def _crop_excess(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Cut the ends of a very long picture, so that "cover" does not enlarge pixels that it cuts off afterwards.

    "cover" scales the picture so that its shorter side fits, and then cuts the longer side. A picture of 1×40,000 pixels
    would first become 112×4,480,000 pixels and then 112×112. Therefore, a picture whose longer side would become longer than
    MAX_COVER_EXCESS sides of the target is cut first. An even number of pixels is removed, so the center does not move. Other
    pictures are not changed.
    """
    lengths = images.shape[-2], images.shape[-1]
    scale = max(side / length for side, length in zip(size, lengths, strict=True))
    kept = [
        length - (length - limit) // 2 * 2 if length > limit else length
        for length, limit in zip(lengths, (math.ceil(MAX_COVER_EXCESS * side / scale) for side in size), strict=True)
    ]
    top, left = ((length - keep) // 2 for length, keep in zip(lengths, kept, strict=True))
    return images[..., top : top + kept[0], left : left + kept[1]]


def _interpolate(images: Tensor, size: tuple[int, int], interpolation: str) -> Tensor:
    if interpolation == "nearest":  # the pixel at each center, computed in integers
        rows, columns = (
            (2 * torch.arange(new, device=images.device) + 1) * old // (2 * new)
            for new, old in zip(size, images.shape[-2:], strict=True)
        )
        return images[..., rows[:, None], columns]
    batch = images if images.ndim == 4 else images[None]
    if images.is_floating_point():
        result = F.interpolate(batch, size, mode=interpolation, antialias=True)
        result = result.clamp(0, 1)  # the cubic kernel overshoots
    else:
        result = F.interpolate(batch.cpu(), size, mode=interpolation, antialias=True).to(images.device)
    return result if images.ndim == 4 else result[0]
