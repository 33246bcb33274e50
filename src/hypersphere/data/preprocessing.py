"""Preprocessing, which turns a sample into the input of a network: the interface, and its implementation for pictures.

Training, evaluation, galleries and the service use the same preprocessing, and embedder files store it.
"""

import io
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor

from .._extras import require
from ..config import Call, Kind, Parameter, decode, encode
from .images import convert_to_eight_bit, decode_image, read_image, rotate_upright
from .resizing import INTERPOLATIONS, crop_box, crop_center, resize_images, set_channels

MAX_INPUT_SIDE = 8192  # pixels; bounds the memory that a preprocessing read from a file can allocate
Box = tuple[int, int, int, int]
Region = Box | tuple[float, float]
"""The part of a sample to use: (x_1, y_1, x_2, y_2) in pixels of a picture, (start, end) in seconds of a recording."""


class Prepared(NamedTuple):
    """A tensor found in a sample, with information about it, such as ``{"box": …, "quality": …}``.

    >>> Prepared(torch.zeros(3, 4, 4), {"box": (0, 0, 4, 4)}).info["box"]
    (0, 0, 4, 4)
    """

    tensor: Tensor
    info: Mapping[str, Any] = MappingProxyType({})

    def windows(self, shape: tuple[int, ...]) -> Tensor:
        """Return the tensor as windows (k, …) of this shape; a single window becomes (1, …)."""
        return self.tensor[None] if self.tensor.ndim == len(shape) else self.tensor


class Preprocessing(ABC):
    """Interface of preprocessing, which turns a sample into the input of a network.

    Implementations define which samples they accept: paths, bytes, PIL pictures, arrays, recordings. Preprocessing has two
    steps. :meth:`load` returns the stored form, a compact tensor of fixed shape and dtype, which is cached and augmented.
    :meth:`normalize` turns a batch of stored tensors into the input of the network. If a sample is larger than one input,
    :meth:`load_windows` returns all of its windows, and the embedder averages the features. An embedder file stores the
    preprocessing as a constructor call. The arguments of the constructor must therefore be numbers, texts, tuples or
    constructor calls.

    An implementation is a frozen dataclass, or a class that overrides :meth:`arguments`.

    >>> @dataclass(frozen=True)
    ... class Waveform(Preprocessing):
    ...     samples: int = 4
    ...     @property
    ...     def shape(self):
    ...         return (self.samples,)
    ...     def load(self, sample, box=None):
    ...         return torch.as_tensor(sample)[: self.samples]
    ...     def normalize(self, stored):
    ...         return stored / 32768
    >>> Waveform()([16384, 0, 0, 0, 7]).tolist()
    [0.5, 0.0, 0.0, 0.0]
    """

    mirror: bool = False
    """Whether the embedder also uses the mirror image of the input."""

    choose: str = "all"
    """Which of several results in one sample to use, such as ``"largest"`` for faces."""

    content: ClassVar[str] = "sample"
    """Noun for the content of a sample in messages, such as "face" in "no face was found"."""

    medium: ClassVar[str] = "picture"
    """Kind of the samples, a noun of :data:`hypersphere.data.media.MEDIA`."""

    plural: ClassVar[str] = "images"
    """Noun for several samples in reports."""

    dtype: ClassVar[torch.dtype] = torch.uint8
    """Type of stored tensors."""

    averages_windows: ClassVar[bool] = False
    """Whether a sample may have several windows. Its feature is then the normalized mean of the directions of their features."""

    input_name: ClassVar[str] = "pixels"
    """Name of stored tensors as the input of an exported graph."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one stored tensor."""

    @abstractmethod
    def load(self, sample: Any, box: Region | None = None) -> Tensor:
        """Return the stored form of a sample.

        Args:
            sample: The sample.
            box: The part of the sample to use, as its record says: (x_1, y_1, x_2, y_2) in pixels of a picture, (start, end) in
                seconds of a recording.

        Raises:
            ValueError: The sample cannot be used.
        """

    @abstractmethod
    def normalize(self, stored: Tensor) -> Tensor:
        """Return the floating-point input of the network for stored tensors, one or a batch."""

    @property
    def finds_several(self) -> bool:
        """Whether a sample may contain several results, such as faces: whether :meth:`load_all` is overridden."""
        return type(self).load_all is not Preprocessing.load_all

    def load_windows(self, sample: Any, box: Region | None = None) -> Tensor:
        """Return the stored form of a whole sample, (k, …); by default the single window of :meth:`load`."""
        return self.load(sample, box)[None]

    def draw_stored(self, count: int, generator: torch.Generator) -> Tensor:
        """Return random stored tensors for comparing the outputs of two networks."""
        return torch.randint(0, 256, (count, *self.shape), generator=generator).to(self.dtype)

    def describe_input(self) -> str:
        """Return one sentence about the input of an exported graph."""
        return "pixels: uint8 (batch, channels, height, width), cropped and resized; scaling is in the graph"

    def encode_example(self) -> bytes:
        """Return the bytes of a gray picture, the warm-up request of a service."""
        file = io.BytesIO()
        require("PIL.Image").new("L", (256, 256), 128).save(file, "PNG")
        return file.getvalue()

    def thumbnails(self, stored: Tensor) -> Tensor:
        """Return stored tensors as small 8-bit pictures (n, channels, height, width) for a report."""
        return stored

    def load_all(self, sample: Any, box: Region | None = None, choose: str = "all") -> list[Prepared]:
        """Return everything that is found in a sample, such as all faces in a photograph, with information about each.

        By default there is one result, whose tensor contains the windows of :meth:`load_windows`.

        Args:
            sample: The sample.
            box: The part of a picture to use.
            choose: Which of several results to return. The accepted values depend on the implementation.

        Returns:
            The results; an empty list if nothing was found.
        """
        return [Prepared(self.load_windows(sample, box))]

    def __call__(self, sample: Any) -> Tensor:
        """Return the input of the network for one sample."""
        return self.normalize(self.load(sample))

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor call that builds this preprocessing."""
        if not is_dataclass(self):
            raise NotImplementedError(f"{type(self).__name__} must be a dataclass or override arguments()")
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to_dict(self) -> dict[str, Any]:
        """Return the constructor call as JSON values.

        >>> hs.data.PicturePreprocessing(size=(8, 8)).to_dict()["size"]
        [8, 8]
        """
        encoded: dict[str, Any] = encode(Call(type(self), self.arguments()))
        return encoded

    @staticmethod
    def from_dict(values: Any, *, trust: bool = False) -> "Preprocessing":
        """Build the preprocessing that :meth:`to_dict` described.

        Args:
            values: The constructor call as JSON values. Without a class name, it is a :class:`PicturePreprocessing`.
            trust: Import a class outside the library, named ``module:class``.

        Returns:
            The preprocessing.

        Raises:
            ValueError: A name is unknown or a value is out of range.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"preprocessing must be a constructor call, got {values!r}")
        call = decode({"call": PicturePreprocessing.__name__, **values}, _PARAMETER, "preprocessing", trust=trust)
        built = call.build()
        if not isinstance(built, Preprocessing):
            raise ValueError(f"preprocessing must build a Preprocessing, got {type(built).__name__}")
        return built


_PARAMETER = Parameter("preprocessing", Annotated[Call, Kind(Preprocessing, ("hypersphere.data",))], None)


@dataclass(frozen=True)
class PicturePreprocessing(Preprocessing):
    """Preprocessing of pictures: turn upright, crop, resize, scale to [0, 1], (x − mean)/std.

    All steps before the normalization use 8 bits, so that a file and its stored picture (in a cache or an array) give the same
    input. The default size and normalization are those of Liu (2020, 2.3) for faces: 112×96, (pixel − 127.5)/128.

    Args:
        size: (height, width) of the input.
        channels: Number of input channels. Gray pictures become three equal channels if this is 3; RGB pictures become gray
            (ITU-R 601) if this is 1.
        mean: Number that is subtracted from pixels in [0, 1], or one number per channel.
        std: Number by which the difference is divided, or one number per channel.
        mirror: Whether the embedder appends the features of the mirror image to those of the picture.
        crop: The part of the picture to keep before resizing: None for the whole picture, "square" for the largest central
            square, an integer n for the central n×n pixels, (x_1, y_1, x_2, y_2) for a box in pixels.
        resize: "stretch" changes the aspect ratio, "cover" keeps it and cuts off the excess, "contain" keeps it and fills the
            rest.
        interpolation: "bilinear" and "bicubic" (both antialiased) or "nearest".
        fill: The pixel value, in [0, 1], with which "contain" fills.

    Raises:
        ValueError: An argument is out of range.

    >>> prepare = PicturePreprocessing(size=(2, 2), channels=1, mean=0.5, std=0.5)
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
        _check_arguments(self)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the input."""
        return (self.channels, *self.size)

    def __call__(self, sample: Any) -> Float[Tensor, "*n c h w"]:
        """Return the input of the network: (c, h, w) for one picture, (n, c, h, w) on its device for a batch.

        Args:
            sample: A path, the bytes of a file, a PIL image, an array (h, w) or (h, w, channels), a tensor (channels, h, w), or
                a batch as a tensor (n, channels, h, w). Arrays and tensors hold uint8, or floating-point pixels in [0, 1].
                Floating-point tensors stay differentiable.
        """
        if isinstance(sample, Tensor) and sample.is_floating_point():
            return self.normalize(self._fit_shape(_check_range(sample)))
        return self.normalize(self.load(sample))

    def load(self, sample: Any, box: Region | None = None) -> UInt8[Tensor, "*n c h w"]:
        """Return the 8-bit picture before normalization.

        Args:
            sample: As in calling.
            box: (x_1, y_1, x_2, y_2) of a part that is cut out first, such as a detected face.
        """
        return self._fit_shape(eight_bit_pixels(sample, box))

    def load_windows(self, sample: Any, box: Region | None = None) -> Shaped[Tensor, "1 c h w"]:
        """Return the single window of a picture. Floating-point tensors are not rounded to 8 bits."""
        if isinstance(sample, Tensor) and sample.is_floating_point() and box is None:
            return self._fit_shape(_check_range(sample))[None]
        return self.load(sample, box)[None]

    def normalize(self, stored: Shaped[Tensor, "*n c h w"]) -> Float[Tensor, "*n c h w"]:
        """Return (x − mean)/std of pictures of the right shape: uint8, or floating point in [0, 1]."""
        x = stored if stored.is_floating_point() else stored.to(torch.get_default_dtype()) / 255
        mean, std = (x.new_tensor(value).reshape(-1, 1, 1) for value in (self.mean, self.std))
        return (x - mean) / std

    def with_statistics(
        self, mean: float | tuple[float, ...], std: float | tuple[float, ...]
    ) -> "PicturePreprocessing":
        """Return the same preprocessing with another mean and standard deviation, for pixels in [0, 1]."""
        return replace(self, mean=mean, std=std)

    def _fit_shape(self, pixels: Shaped[Tensor, "*n _ _ _"]) -> Shaped[Tensor, "*n c h w"]:
        """Adapt channels, crop and resize."""
        pixels = set_channels(pixels, self.channels)
        if self.crop is not None:
            pixels = crop_box(pixels, self.crop) if isinstance(self.crop, tuple) else crop_center(pixels, self.crop)
        return resize_images(pixels, self.size, self.resize, self.interpolation, self.fill)


def eight_bit_pixels(image: Any, box: Region | None = None) -> UInt8[Tensor, "*n c h w"]:
    """Return any kind of picture as 8-bit (c, h, w) at its own size, cut to ``box`` if one is given."""
    if box is not None and len(box) != 4:
        raise ValueError(f"the part of a picture must be a box (x_1, y_1, x_2, y_2), got {box!r}")
    pixels = _convert_to_pixels(image)
    return pixels if box is None else crop_box(pixels, box)


def _convert_to_pixels(image: Any) -> UInt8[Tensor, "*n c h w"]:
    if isinstance(image, Tensor):
        if image.is_floating_point():
            return _check_range(image).mul(255).round().to(torch.uint8)
        if image.dtype != torch.uint8 or image.ndim not in (3, 4):
            raise ValueError(
                f"a tensor must be uint8 or float pixels in [0, 1] of shape (c, h, w) or (n, c, h, w), "
                f"got {image.dtype} {tuple(image.shape)}"
            )
        return image
    if isinstance(image, np.ndarray):
        return _convert_array(image)
    if isinstance(image, str | os.PathLike):
        image = read_image(image)
    elif isinstance(image, bytes):
        image = decode_image(image, "the picture", None)
    elif isinstance(image, require("PIL.Image").Image):
        image = convert_to_eight_bit(rotate_upright(image))
    else:
        raise ValueError(
            f"an image must be a path, bytes, a PIL image, an array or a tensor, got {type(image).__name__}"
        )
    pixels = torch.from_numpy(np.array(image))
    # The channels are not made contiguous, because resizing is fastest in this memory layout.
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)


def _convert_array(image: np.ndarray) -> UInt8[Tensor, "c h w"]:
    if image.ndim not in (2, 3) or image.size == 0 or image.dtype.kind not in "buf":
        raise ValueError(
            f"an array must hold pixels of shape (h, w) or (h, w, channels) as uint8, uint16 or float in [0, 1], "
            f"got {image.dtype} {image.shape}"
        )
    if image.ndim == 3 and image.shape[2] in (2, 4) and image.dtype == np.uint8:  # transparent
        return _convert_to_pixels(require("PIL.Image").fromarray(image))
    if image.dtype.kind == "f":
        pixels = _check_range(torch.from_numpy(image)[..., None, :, :] if image.ndim == 2 else torch.from_numpy(image))
        scaled = pixels.reshape(image.shape).mul(255).round().to(torch.uint8)
    else:
        top = 1 if image.dtype.kind == "b" else np.iinfo(image.dtype).max
        scaled = torch.from_numpy(
            image.copy() if top == 255 else np.rint(image.astype(np.float64) * (255 / top)).astype(np.uint8)
        )
    return scaled[None] if scaled.ndim == 2 else scaled.permute(2, 0, 1)


def _check_range(image: Tensor) -> Tensor:
    if image.ndim not in (3, 4) or not image.numel():
        raise ValueError(f"a tensor must have the shape (c, h, w) or (n, c, h, w), got {tuple(image.shape)}")
    low, high = (float(value) for value in image.detach().aminmax())
    if not (low >= 0 and high <= 1):
        raise ValueError(f"floating-point pixels must lie in 0 … 1, got {low:g} … {high:g}")
    return image


def _check_arguments(self: PicturePreprocessing) -> None:
    if not _are_integers(self.size, 2) or not all(1 <= side <= MAX_INPUT_SIDE for side in self.size):
        raise ValueError(f"size must be (height, width), both in 1 … {MAX_INPUT_SIDE}, got {self.size!r}")
    if not _are_integers((self.channels,), 1) or not 1 <= self.channels <= 1024:
        raise ValueError(f"channels must be an integer in 1 … 1024, got {self.channels!r}")
    for name, least in (("mean", -1e6), ("std", 1e-6)):
        value = getattr(self, name)
        numbers = value if isinstance(value, tuple) else (value,)
        if len(numbers) not in ({1, self.channels} if isinstance(value, tuple) else {1}):
            raise ValueError(f"{name} must be one number or {self.channels}, one per channel, got {value!r}")
        if not all(_is_number(number) and least <= number <= 1e6 for number in numbers):
            raise ValueError(f"{name} must be a number in {least:g} … 1e6, or one per channel, got {value!r}")
    if not isinstance(self.mirror, bool):
        raise ValueError(f"mirror must be true or false, got {self.mirror!r}")
    crop = self.crop
    if isinstance(crop, tuple):
        if not _are_integers(crop, 4) or not (0 <= crop[0] < crop[2] and 0 <= crop[1] < crop[3]):
            raise ValueError(f"crop must be a box (x_1, y_1, x_2, y_2) of pixels with 0 ≤ x_1 < x_2, got {crop!r}")
    elif not (crop is None or crop == "square" or (_are_integers((crop,), 1) and crop >= 1)):
        raise ValueError(f"crop must be None, 'square', an integer ≥ 1 or a box (x_1, y_1, x_2, y_2), got {crop!r}")
    for name, accepted in (("resize", ("stretch", "cover", "contain")), ("interpolation", INTERPOLATIONS)):
        if getattr(self, name) not in accepted:
            raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {getattr(self, name)!r}")
    if not _is_number(self.fill) or not 0 <= self.fill <= 1:
        raise ValueError(f"fill must be a number in 0 … 1, got {self.fill!r}")


def _are_integers(values: Any, count: int) -> bool:
    return isinstance(values, tuple) and len(values) == count and all(type(value) is int for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
