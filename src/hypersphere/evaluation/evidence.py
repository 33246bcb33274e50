"""Samples for a report page: features, labels, and small pictures, in one file."""

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
        features: One row a sample, ``(n, d)``.
        labels: The class of each sample, an index into ``classes``.
        classes: The names of the classes.
        total: How many samples were measured in all; ``n`` of them are here.
        images: Small pictures of the samples, bytes ``(n, h, w, channels)`` with one or three channels; None where the
            samples are no images.
        names: What each sample is called, its file for example; None where samples have no names.

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
        for name, given in (("labels", self.labels), ("images", self.images), ("names", self.names)):
            if given is not None and len(given) != count:
                raise ValueError(f"{name} must have one entry for each of {count} features, got {len(given)}")
        if count and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            span = f"{int(self.labels.min())} … {int(self.labels.max())}"
            raise ValueError(f"labels must index the {len(self.classes)} classes, got {span}")
        if not self.features.isfinite().all():
            raise ValueError("features must be finite, got some that are not")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file without pickles, atomically."""
        tree = {
            "format": FORMAT,
            "features": self.features.detach().float(),
            "labels": self.labels.detach().long(),
            "classes": [str(name) for name in self.classes],
            "total": int(self.total),
            "images": self.images,
            "names": None if self.names is None else [str(name) for name in self.names],
        }
        save_tree(tree, path, private=True)  # features and thumbnails of people

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Evidence":
        """Load a file of :meth:`save`; raise a ``ValueError`` if it is damaged or of another kind."""
        tree = load_tree(path)
        if not isinstance(tree, dict) or tree.pop("format", None) != FORMAT:
            raise ValueError(f"{path} is no file of format {FORMAT}")
        return cls(**tree)


def choose_samples(
    labels: Int[Tensor, "n"], most: int = 2000, per_class: int = 40, seed: int = 0
) -> Int[Tensor, "shown"]:
    """Return which samples a page shows: class after class in random order, about ``most`` samples in all.

    At most ``per_class`` samples of a class are taken, or an equal share of ``most`` where that is more. Few classes
    with many samples are better than the reverse, because pairs of one class are what is looked at. At least two
    classes are taken where there are two. The positions are in increasing order.

    >>> len(choose_samples(torch.arange(100) % 10, most=20, per_class=5))  # four of ten classes
    20
    """
    stream = Stream(seed, EVIDENCE)
    order = stream.permutation(len(labels))
    names = labels.unique()
    enough = max(per_class, most // max(len(names), 1))
    chosen: list[Tensor] = []
    taken = 0
    for place in stream.permutation(len(names)).tolist():
        mine = order[labels[order] == names[place]][:enough]
        if len(chosen) >= 2 and taken + len(mine) > most:
            break
        chosen.append(mine)
        taken += len(mine)
    return torch.cat(chosen).sort().values if chosen else labels.new_zeros(0)


def thumbnails(
    batch: Shaped[Tensor, "n ..."], side: int = 64, limit: int = 8_000_000
) -> UInt8[Tensor, "n h w channels"] | None:
    """Return small pictures of a batch of images, or None if they are not ``(n, channels, h, w)`` with 1 or 3 channels.

    Args:
        batch: Images as a dataset gives them. Bytes are kept, other numbers are stretched to the range of the batch.
        side: The longest side; smaller images stay as they are.
        limit: Bytes of all pictures together; the side shrinks until they fit.

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
    longest = min(side, max(height, width), int(math.sqrt(limit / (count * channels)) * max(1, _aspect(height, width))))
    if longest < max(height, width):
        scale = max(longest, 1) / max(height, width)
        size = (max(1, round(height * scale)), max(1, round(width * scale)))
        pixels = functional.interpolate(pixels, size=size, mode="area")
    return pixels.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def _aspect(height: int, width: int) -> float:
    """Return √(long side / short side), because a narrow image may be longer within the same area."""
    return math.sqrt(max(height, width) / min(height, width))
