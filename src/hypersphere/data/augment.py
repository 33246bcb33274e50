"""Augmentation of batches: crops, flips, affine maps.

An augmentation is a pure function of the samples and of random numbers passed to it. It draws no random numbers itself, so
the result for a sample depends only on the numbers that :class:`Loader` passes for its position. Batches are uint8 or
floating point, on any device. Random numbers are float64 on the CPU.
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

Batch = Shaped[Tensor, "b ..."]
Uniforms = Float[Tensor, "b draws"]


class Augmentation(ABC):
    """Base class: ``augment(batch, u)``, where row i of ``u`` holds ``draws`` uniform numbers in [0, 1) for sample i.

    >>> class Brighten(Augmentation):
    ...     def draws(self, shape):
    ...         return 1
    ...     def __call__(self, batch, u):
    ...         return batch * (1 + u[:, :1])
    >>> Brighten()(torch.ones(2, 3), torch.tensor([[0.0], [0.5]])).tolist()
    [[1.0, 1.0, 1.0], [1.5, 1.5, 1.5]]
    """

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random numbers per sample of this shape."""
        return 0

    @abstractmethod
    def __call__(self, batch: Batch, u: Uniforms) -> Batch:
        """Return the augmented batch."""


class Compose(Augmentation):
    """Several augmentations in sequence. Each uses its own columns of the random numbers, in order.

    >>> augment = Compose(CropFlip(pad=1), Normalize(0.0, 255.0))
    >>> augment.draws(torch.Size([1, 2, 2]))
    3
    >>> augment(torch.full((1, 1, 2, 2), 255, dtype=torch.uint8), torch.tensor([[0.5, 0.5, 0.9]])).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """

    def __init__(self, *steps: Augmentation):
        self.steps = steps

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per sample: the sum over all steps."""
        return sum(step.draws(shape) for step in self.steps)

    def __call__(self, batch: Batch, u: Uniforms) -> Batch:
        """Apply the steps."""
        start, shape = 0, batch.shape[1:]
        for step in self.steps:
            count = step.draws(shape)
            batch = step(batch, u[:, start : start + count])
            start += count
        return batch


class CropFlip(Augmentation):
    """A random ``size``×``size`` crop of the image padded with ``pad`` zeros on each side, mirrored with probability 1/2.

    Liu (2020) pads CIFAR images with 4 zeros and crops 32×32 (2.2.7); SphereNets also flip vertically (3.4.5). ImageNet images of
    256×256 are cropped to 224×224 without padding (B.2). Faces are only mirrored (2.3: ``pad=0``). ``size=None`` keeps the size.

    >>> CropFlip(pad=1)(torch.ones(2, 1, 2, 2, dtype=torch.uint8), torch.tensor([[0.5, 0.5, 0.9], [0.0, 0.0, 0.0]]))[:, 0].tolist()
    [[[1, 1], [1, 1]], [[0, 0], [1, 0]]]
    """

    def __init__(self, pad: int = 4, size: int | None = None, horizontal: bool = True, vertical: bool = False):
        if pad < 0 or (size is not None and size < 1):
            raise ValueError(f"pad must be ≥ 0 and size ≥ 1, got {pad} and {size}")
        self.pad, self.size, self.horizontal, self.vertical = pad, size, horizontal, vertical

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per image: two for the crop and one per mirror direction."""
        return 2 + self.horizontal + self.vertical

    def __call__(self, batch: Shaped[Tensor, "b c h w"], u: Uniforms) -> Shaped[Tensor, "b c _ _"]:
        """Crop and mirror with a single gather."""
        b, c, h, w = batch.shape
        padded = torch.nn.functional.pad(batch, (self.pad,) * 4)
        padded_h, padded_w = h + 2 * self.pad, w + 2 * self.pad
        crop_h, crop_w = (h, w) if self.size is None else (self.size, self.size)
        if crop_h > padded_h or crop_w > padded_w:
            raise ValueError(f"size must be at most {min(padded_h, padded_w)}, the padded image, got {self.size}")
        rows = _compute_crop_lines(
            u[:, 0], padded_h - crop_h, crop_h, u[:, 2 + self.horizontal] < 0.5 if self.vertical else None
        ).to(batch.device)
        columns = _compute_crop_lines(
            u[:, 1], padded_w - crop_w, crop_w, u[:, 2] < 0.5 if self.horizontal else None
        ).to(batch.device)
        index = (rows[:, :, None] * padded_w + columns[:, None, :]).reshape(b, 1, crop_h * crop_w).expand(b, c, -1)
        return padded.reshape(b, c, padded_h * padded_w).gather(2, index).reshape(b, c, crop_h, crop_w)


class Normalize(Augmentation):
    """Normalization (x − mean)/scale in ``dtype``. ``mean`` and ``scale`` are numbers, one value per channel, or a whole image.

    >>> Normalize(127.5, 128.0)(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), torch.empty(1, 0)).flatten().tolist()
    [-0.99609375, 0.99609375]
    """

    def __init__(self, mean: float | Tensor = 0.0, scale: float | Tensor = 255.0, dtype: torch.dtype = torch.float32):
        self.mean, self.scale, self.dtype = torch.as_tensor(mean), torch.as_tensor(scale), dtype
        if not bool((self.scale > 0).all()):
            raise ValueError(f"scale must be > 0, got {scale}")

    @classmethod
    def of(cls, dataset: Any, pixelwise: bool = False, scale: float | None = None) -> "Normalize":
        """Return the normalization by a dataset's mean and ``scale``; by default its standard deviation per channel.

        ``pixelwise=True`` subtracts the mean image instead of the mean per channel.
        """
        count, sums, squares = len(dataset), torch.zeros(()), torch.zeros(())
        # In blocks, because the whole dataset in float64 would take eight times its memory.
        for index in torch.arange(count).split(1024):
            part = (
                dataset.batch(index)[0]
                if hasattr(dataset, "batch")
                else torch.stack([dataset[i][0] for i in index.tolist()])
            )
            sums, squares = sums + part.cpu().double().sum(0), squares + part.cpu().double().square().sum(0)
        mean = sums.flatten(1).mean(1) / count
        deviation = (squares.flatten(1).mean(1) / count - mean.square()).clamp(min=0).sqrt()
        shape = (-1,) + (1,) * (sums.ndim - 1)
        pixels = sums / count if pixelwise else mean.reshape(shape)
        return cls(pixels.float(), deviation.clamp(min=1e-6).reshape(shape).float() if scale is None else scale)

    def __call__(self, batch: Batch, u: Uniforms) -> Batch:
        """Normalize the batch; no random numbers are used."""
        mean, scale = self.mean.to(batch.device, self.dtype), self.scale.to(batch.device, self.dtype)
        return batch.to(self.dtype).sub_(mean).div_(scale) if batch.dtype != self.dtype else (batch - mean) / scale


FACES = Normalize(127.5, 128.0)  # normalization of face pixels, Liu (2020, 2.3.6)


class RotateJitter(Augmentation):
    """PointNet's augmentation: rotate each cloud about the axis ``up`` and add clipped Gaussian noise to each point.

    Args:
        sigma: Standard deviation of the noise, in the units of the points.
        clip: Maximum displacement of a point along an axis.
        up: Index of the rotation axis.

    >>> augment, cloud = RotateJitter(sigma=0.0), torch.tensor([[[1.0, 2.0, 0.0]]])
    >>> u = torch.tensor([[0.25, 0.5, 0.5, 0.5]])  # a quarter turn, and the middle of the noise three times
    >>> augment.draws(cloud.shape[1:]), augment(cloud, u).round(decimals=4).tolist()
    (4, [[[-0.0, 2.0, 1.0]]])
    """

    def __init__(self, sigma: float = 0.01, clip: float = 0.05, up: int = 1):
        for name, value in (("sigma", sigma), ("clip", clip)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a finite number ≥ 0, got {value!r}")
        if up not in (0, 1, 2):
            raise ValueError(f"up must be one of the axes 0, 1 and 2, got {up!r}")
        self.sigma, self.clip, self.up = sigma, clip, up

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per cloud: one for the angle and three per point."""
        return 1 + math.prod(shape)

    def __call__(self, batch: Float[Tensor, "b n 3"], u: Uniforms) -> Float[Tensor, "b n 3"]:
        """Rotate and jitter. The inverse error function converts uniform to Gaussian numbers."""
        if batch.ndim != 3 or batch.shape[-1] != 3:
            raise ValueError(f"RotateJitter rotates clouds of shape (b, n, 3), got {tuple(batch.shape)}")
        angle = u[:, :1] * (2 * math.pi)
        cos, sin = angle.cos().to(batch), angle.sin().to(batch)
        x, y = (axis for axis in range(3) if axis != self.up)
        rotated = batch.clone()
        rotated[..., x] = batch[..., x] * cos - batch[..., y] * sin
        rotated[..., y] = batch[..., x] * sin + batch[..., y] * cos
        noise = torch.erfinv(2 * u[:, 1:] - 1) * (math.sqrt(2) * self.sigma)
        return rotated + noise.clamp(-self.clip, self.clip).reshape(batch.shape).to(batch)


class Affine(Augmentation):
    r"""Random affine map x ↦ R(θ)·[[1, k], [0, 1]]·diag(s₁, s₂)·x + t, in pixels from the center of the image.

    All parameters are uniform: the angle θ in ±``rotation`` (radians, from the x axis to the y axis, which points down), the
    shear k in ±``shear``, each factor s in 1 ± ``scale``, and each shift t in ±``shift`` pixels. Interpolation is bilinear.
    Pixels from outside the image have the value ``fill``. Integers are rounded. Shape and dtype do not change.

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
        """Return the number of random draws per image: angle, shear, two factors and two shifts."""
        return 6

    def __call__(self, batch: Shaped[Tensor, "b c h w"], u: Uniforms) -> Shaped[Tensor, "b c h w"]:
        """Apply the maps. ``grid_sample`` takes the inverse map: the source position of each output pixel."""
        h, w = batch.shape[2:]
        values = to_floating_point(batch) - self.fill  # grid_sample pads with zeros, so subtract the fill value first
        grid = self._compute_sampling_grid(2 * u.double() - 1, h, w).to(values)
        mapped = F.grid_sample(values, grid, mode="bilinear", padding_mode="zeros", align_corners=False) + self.fill
        return restore_dtype(mapped, batch)

    def _compute_sampling_grid(self, v: Float[Tensor, "b draws"], h: int, w: int) -> Float[Tensor, "b h w 2"]:
        """Return the source position of every pixel in ``grid_sample`` coordinates, −1 … 1; ``v`` is uniform in [−1, 1)."""
        angle, shear = v[:, 0] * self.rotation, v[:, 1] * self.shear
        factor, shift = 1 + v[:, 2:4] * self.scale, v[:, 4:6] * self.shift
        cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
        size = torch.tensor([w, h], dtype=v.dtype)
        inverse_rotation = torch.stack([cos, sin, -sin, cos], 1).reshape(-1, 2, 2)
        inverse_shear = torch.stack([torch.ones_like(shear), -shear, zero, zero + 1], 1).reshape(-1, 2, 2)
        inverse = (inverse_shear @ inverse_rotation) / factor[:, :, None]
        y, x = torch.meshgrid(*(torch.arange(n, dtype=v.dtype) - (n - 1) / 2 for n in (h, w)), indexing="ij")
        pixels = torch.stack([x, y], -1) + self._compute_displacement(v[:, 6:], h, w) - shift[:, None, None, :]
        return torch.einsum("bij,bhwj->bhwi", inverse, pixels) * 2 / size

    def _compute_displacement(self, v: Float[Tensor, "b more"], h: int, w: int) -> Float[Tensor, "#b h w 2"]:
        """Return the extra displacement of each pixel in pixels: zero; :class:`Elastic` overrides it."""
        return torch.zeros(1, h, w, 2, dtype=v.dtype)


def restore_dtype(values: Tensor, batch: Tensor) -> Tensor:
    """Convert values to the dtype of ``batch``. For integer types, round and clamp them to the range of the type."""
    if batch.is_floating_point():
        return values.to(batch.dtype)
    limits = torch.iinfo(batch.dtype)
    return values.round().clamp(limits.min, limits.max).to(batch.dtype)


def to_floating_point(batch: Tensor) -> Tensor:
    """Convert a batch to float32, or keep its precision if it is higher."""
    return batch.to(torch.promote_types(batch.dtype, torch.float32) if batch.is_floating_point() else torch.float32)


def check_range(name: str, values: tuple[float, float], low: float, high: float) -> tuple[float, float]:
    """Return ``values`` if low ≤ first ≤ second ≤ high; raise a ``ValueError`` otherwise."""
    if len(values) != 2 or not low <= values[0] <= values[1] <= high:
        raise ValueError(f"{name} must be two numbers in ascending order within {low:g} … {high:g}, got {values}")
    return values[0], values[1]


def _compute_crop_lines(u: Tensor, max_offset: int, length: int, mirrored: Tensor | None) -> Tensor:
    """Return the row (or column) indices of each crop, reversed for mirrored samples."""
    lines = torch.arange(length)
    if mirrored is not None:
        lines = torch.where(mirrored[:, None], length - 1 - lines, lines)
    return (u * (max_offset + 1)).long()[:, None] + lines
