"""Samples for a report page in one file: features, labels and thumbnails."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor
from torch.nn import functional

from ..data.streams import EVIDENCE, Stream
from ..files import load_tree, save_tree

FORMAT = "hypersphere-evidence/1"
FILE = "evidence.safetensors"


@dataclass(frozen=True)
class Evidence:
    """Measured samples for a report page.

    Attributes:
        features: Features of the samples, ``(n, d)``.
        labels: Class of each sample, an index into ``classes``.
        classes: Names of the classes.
        total: Number of all measured samples, of which this file holds ``n``.
        images: Thumbnails of the samples, bytes ``(n, h, w, channels)`` with one or three channels; None if the samples
            are not images.
        names: Name of each sample, for example its file; None if samples have no names.

    >>> Evidence(torch.eye(3), torch.arange(3), ["a", "b", "c"], total=3).images is None
    True
    """

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, "labels"]
    classes: Sequence[str]
    total: int
    images: UInt8[Tensor, "images h w channels"] | None = None
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        count = len(self.features)
        for name, values in (("labels", self.labels), ("images", self.images), ("names", self.names)):
            if values is not None and len(values) != count:
                raise ValueError(f"{name} must have one entry for each of {count} features, got {len(values)}")
        if count and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            bounds = f"{int(self.labels.min())} … {int(self.labels.max())}"
            raise ValueError(f"labels must index the {len(self.classes)} classes, got {bounds}")
        if not self.features.isfinite().all():
            raise ValueError("features must be finite, got NaN or infinity")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the samples to one file atomically, without pickle."""
        tree = {
            "format": FORMAT,
            "features": self.features.detach().float(),
            "labels": self.labels.detach().long(),
            "classes": [str(name) for name in self.classes],
            "total": int(self.total),
            "images": self.images,
            "names": None if self.names is None else [str(name) for name in self.names],
        }
        save_tree(tree, path, private=True)  # the samples may be people

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Evidence":
        """Load a file written by :meth:`save`; raise ``ValueError`` if it is damaged or has another format."""
        tree = load_tree(path)
        if not isinstance(tree, dict) or tree.pop("format", None) != FORMAT:
            raise ValueError(f"{path} is not a file of format {FORMAT}")
        return cls(**tree)


def choose_samples(
    labels: Int[Tensor, "n"], most: int = 2000, per_class: int = 40, seed: int = 0
) -> Int[Tensor, "shown"]:
    """Choose about ``most`` samples for a page and return their indices in increasing order.

    Classes are added in random order. Each contributes at most ``per_class`` samples, or an equal share of ``most`` if that
    is larger. Many samples of few classes are better than few samples of many classes, because the page shows pairs of the
    same class. At least two classes are chosen if there are two.

    >>> len(choose_samples(torch.arange(100) % 10, most=20, per_class=5))  # four of ten classes
    20
    """
    stream = Stream(seed, EVIDENCE)
    order = stream.permutation(len(labels))
    classes = labels.unique()
    limit = max(per_class, most // max(len(classes), 1))
    chosen: list[Tensor] = []
    total = 0
    for index in stream.permutation(len(classes)).tolist():
        members = order[labels[order] == classes[index]][:limit]
        if len(chosen) >= 2 and total + len(members) > most:
            break
        chosen.append(members)
        total += len(members)
    return torch.cat(chosen).sort().values if chosen else labels.new_zeros(0)


def thumbnails(
    batch: Shaped[Tensor, "n ..."], side: int = 64, limit: int = 8_000_000
) -> UInt8[Tensor, "n h w channels"] | None:
    """Return thumbnails of a batch of images, or None if its shape is not ``(n, channels, h, w)`` with 1 or 3 channels.

    Args:
        batch: Images of a dataset. Bytes are kept; other numbers are rescaled from the range of the batch to 0 … 255.
        side: Longest side in pixels; smaller images keep their size.
        limit: Maximum size of all thumbnails together in bytes; the side is reduced to fit.

    >>> thumbnails(torch.zeros(2, 3, 128, 96, dtype=torch.uint8)).shape
    torch.Size([2, 64, 48, 3])
    """
    if batch.ndim != 4 or batch.shape[1] not in (1, 3) or not batch.numel():
        return None
    pixels = batch.detach().cpu().float()
    if batch.dtype != torch.uint8:
        low, high = pixels.amin(), pixels.amax()
        pixels = (pixels - low) * (255 / (high - low).clamp_min(1e-12))
    count, channels, height, width = pixels.shape
    longest = min(
        side,
        max(height, width),
        int(math.sqrt(limit / (count * channels)) * max(1, _compute_elongation(height, width))),
    )
    if longest < max(height, width):
        scale = max(longest, 1) / max(height, width)
        size = (max(1, round(height * scale)), max(1, round(width * scale)))
        pixels = functional.interpolate(pixels, size=size, mode="area")
    return pixels.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def _compute_elongation(height: int, width: int) -> float:
    """Return √(long side / short side): the long side of an image relative to the side of a square of the same area."""
    return math.sqrt(max(height, width) / min(height, width))
