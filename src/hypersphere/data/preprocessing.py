"""The one way from an image to a network's input, shared by training, evaluation and serving."""

import math
import os
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor

from .._extras import require
from .images import eight_bit, read_image, upright
from .resizing import INTERPOLATIONS, centre, recolour, resized, window

MAX_SIDE = 8192  # of a network's input; a stored preprocessing must not be able to ask for any amount of memory
Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the input of a network: turned upright, cropped, resized, scaled to [0, 1], (x − mean)/std.

    Everything before the normalization happens in 8 bits, so that a stored picture (a cache, an array set) and the file it came
    from give the same input. The defaults are those of Liu (2020, 2.3) for faces: 112×96, (pixel − 127.5)/128.

    Args:
        size: (height, width) of the input.
        channels: of the input. Grey images become three equal channels and RGB ones grey (ITU-R 601) where 1 or 3 asks for it.
        mean: subtracted from pixels in [0, 1]; one number, or one for each channel.
        std: divides them; one number, or one for each channel.
        mirror: append the features of the mirror image to those of the image; the embedder does so.
        crop: what is kept of the image before it is resized: None is all of it, "square" the largest central square, an integer
            n the central n×n, and (x_1, y_1, x_2, y_2) that box, in pixels.
        resize: "stretch" ignores the aspect ratio, "cover" keeps it and cuts off what is too much, "contain" keeps it and
            fills what is missing.
        interpolation: "bilinear" and "bicubic" (both antialiased) or "nearest".
        fill: the pixel, in [0, 1], with which "contain" fills.

    >>> prepare = Preprocessing(size=(2, 2), channels=1, mean=0.5, std=0.5)
    >>> prepare(np.full((4, 4), 255, dtype=np.uint8)).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    >>> Preprocessing.from_dict(prepare.to_dict()) == prepare
    True
    """

    size: tuple[int, int] = (112, 96)
    channels: int = 3
    mean: float | tuple[float, ...] = 127.5 / 255
    std: float | tuple[float, ...] = 128 / 255
    mirror: bool = False
    crop: Literal["square"] | int | tuple[int, int, int, int] | None = None
    resize: Literal["stretch", "cover", "contain"] = "stretch"
    interpolation: Literal["bilinear", "bicubic", "nearest"] = "bilinear"
    fill: float = 0.0

    def __post_init__(self) -> None:
        _check(self)

    def __call__(self, image: Any) -> Float[Tensor, "*n c h w"]:
        """The network's input: of one image (c, h, w), or of a batch (n, c, h, w) on the batch's device.

        ``image`` is a path, a PIL image, an array (h, w) or (h, w, channels), a tensor (channels, h, w), or a batch as a tensor
        (n, channels, h, w). Arrays and tensors hold uint8, or floating-point pixels in [0, 1], which stay differentiable.
        """
        if isinstance(image, Tensor) and image.is_floating_point():
            return self.normalize(self._shaped(_checked(image)))
        return self.normalize(self.pixels(image))

    def pixels(self, image: Any, box: Box | None = None) -> UInt8[Tensor, "*n c h w"]:
        """The 8-bit picture before normalization, which caches keep and augmentation changes; arguments as in calling.

        ``box`` = (x_1, y_1, x_2, y_2) is cut out first: it is the image's own, such as the detected face in a table.
        """
        return self._shaped(eight_bit_pixels(image, box))

    def normalize(self, pixels: Shaped[Tensor, "*n c h w"]) -> Float[Tensor, "*n c h w"]:
        """(x − mean)/std of pixels already at size: uint8, or floating point in [0, 1]. The result is floating point."""
        x = pixels if pixels.is_floating_point() else pixels.to(torch.get_default_dtype()) / 255
        mean, std = (x.new_tensor(value).reshape(-1, 1, 1) for value in (self.mean, self.std))
        return (x - mean) / std

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON holds them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Preprocessing":
        """What :meth:`to_dict` gave; unknown names and values out of range are a ``ValueError``."""
        known = [field.name for field in fields(cls)]
        if not isinstance(values, dict) or not set(values) <= set(known):
            given = ", ".join(map(str, values)) if isinstance(values, dict) else repr(values)
            raise ValueError(f"preprocessing must be a mapping with names among {', '.join(known)}, got {given}")
        given_fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**given_fields)

    def with_statistics(self, mean: float | tuple[float, ...], std: float | tuple[float, ...]) -> "Preprocessing":
        """The same with another mean and deviation, in units of pixels in [0, 1]."""
        return replace(self, mean=mean, std=std)

    def _shaped(self, pixels: Shaped[Tensor, "*n _ _ _"]) -> Shaped[Tensor, "*n c h w"]:
        """Channels, crop and size."""
        pixels = recolour(pixels, self.channels)
        if self.crop is not None:
            pixels = window(pixels, self.crop) if isinstance(self.crop, tuple) else centre(pixels, self.crop)
        return resized(pixels, self.size, self.resize, self.interpolation, self.fill)


def eight_bit_pixels(image: Any, box: Box | None = None) -> UInt8[Tensor, "*n c h w"]:
    """Any kind of image as 8-bit channels, height and width, at its own size; of a ``box`` only what is inside."""
    pixels = _pixels(image)
    return pixels if box is None else window(pixels, box)


def _pixels(image: Any) -> UInt8[Tensor, "*n c h w"]:
    if isinstance(image, Tensor):
        if image.is_floating_point():
            return _checked(image).mul(255).round().to(torch.uint8)
        if image.dtype != torch.uint8 or image.ndim not in (3, 4):
            raise ValueError(
                f"a tensor must be uint8 or float pixels in [0, 1] of shape (c, h, w) or (n, c, h, w), "
                f"got {image.dtype} {tuple(image.shape)}"
            )
        return image
    if isinstance(image, np.ndarray):
        return _array(image)
    if isinstance(image, str | os.PathLike):
        image = read_image(image)
    elif isinstance(image, require("PIL.Image").Image):
        image = eight_bit(upright(image))
    else:
        raise ValueError(f"an image must be a path, a PIL image, an array or a tensor, got {type(image).__name__}")
    pixels = torch.from_numpy(np.array(image))
    return (
        pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)
    )  # not copied: resizing is fastest in this order


def _array(image: np.ndarray) -> UInt8[Tensor, "c h w"]:
    if image.ndim not in (2, 3) or image.size == 0 or image.dtype.kind not in "buf":
        raise ValueError(
            f"an array must hold pixels of shape (h, w) or (h, w, channels) as uint8, uint16 or float in [0, 1], "
            f"got {image.dtype} {image.shape}"
        )
    if image.ndim == 3 and image.shape[2] in (2, 4) and image.dtype == np.uint8:  # transparent
        return _pixels(require("PIL.Image").fromarray(image))
    if image.dtype.kind == "f":
        pixels = _checked(torch.from_numpy(image)[..., None, :, :] if image.ndim == 2 else torch.from_numpy(image))
        scaled = pixels.reshape(image.shape).mul(255).round().to(torch.uint8)
    else:
        top = 1 if image.dtype.kind == "b" else np.iinfo(image.dtype).max
        scaled = torch.from_numpy(
            image.copy() if top == 255 else np.rint(image.astype(np.float64) * (255 / top)).astype(np.uint8)
        )
    return scaled[None] if scaled.ndim == 2 else scaled.permute(2, 0, 1)


def _checked(image: Tensor) -> Tensor:
    if image.ndim not in (3, 4) or not image.numel():
        raise ValueError(f"a tensor must have the shape (c, h, w) or (n, c, h, w), got {tuple(image.shape)}")
    low, high = (float(value) for value in image.detach().aminmax())
    if not (low >= 0 and high <= 1):
        raise ValueError(f"floating-point pixels must lie in 0 … 1, got {low:g} … {high:g}")
    return image


def _check(self: Preprocessing) -> None:
    if not _integers(self.size, 2) or not all(1 <= side <= MAX_SIDE for side in self.size):
        raise ValueError(f"size must be (height, width), both in 1 … {MAX_SIDE}, got {self.size!r}")
    if not _integers((self.channels,), 1) or not 1 <= self.channels <= 1024:
        raise ValueError(f"channels must be an integer in 1 … 1024, got {self.channels!r}")
    for name, least in (("mean", -1e6), ("std", 1e-6)):
        value = getattr(self, name)
        numbers = value if isinstance(value, tuple) else (value,)
        if len(numbers) not in ({1, self.channels} if isinstance(value, tuple) else {1}):
            raise ValueError(f"{name} must be one number or {self.channels}, one for each channel, got {value!r}")
        if not all(_number(number) and least <= number <= 1e6 for number in numbers):
            raise ValueError(f"{name} must be a number in {least:g} … 1e6, or one for each channel, got {value!r}")
    if not isinstance(self.mirror, bool):
        raise ValueError(f"mirror must be true or false, got {self.mirror!r}")
    crop = self.crop
    if isinstance(crop, tuple):
        if not _integers(crop, 4) or not (0 <= crop[0] < crop[2] and 0 <= crop[1] < crop[3]):
            raise ValueError(f"crop must be a box (x_1, y_1, x_2, y_2) of pixels with 0 ≤ x_1 < x_2, got {crop!r}")
    elif not (crop is None or crop == "square" or (_integers((crop,), 1) and crop >= 1)):
        raise ValueError(f"crop must be None, 'square', an integer ≥ 1 or a box (x_1, y_1, x_2, y_2), got {crop!r}")
    for name, accepted in (("resize", ("stretch", "cover", "contain")), ("interpolation", INTERPOLATIONS)):
        if getattr(self, name) not in accepted:
            raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {getattr(self, name)!r}")
    if not _number(self.fill) or not 0 <= self.fill <= 1:
        raise ValueError(f"fill must be a number in 0 … 1, got {self.fill!r}")


def _integers(values: Any, count: int) -> bool:
    return isinstance(values, tuple) and len(values) == count and all(type(value) is int for value in values)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
