"""Whether pictures are fit for training: what cannot be read, what is there twice, who has one picture, what leaks."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset

from .errors import CorruptDataError, DataError
from .picture_hashes import difference_hash, near_groups, pixel_digest, same_groups
from .prefetch import ahead
from .preprocessing import eight_bit_pixels
from .sources import Source, open_source

FORMAT = "hypersphere-check/1"
SHOWN = 8  # names of a kind that are printed
_BLOCK = 64  # pictures a worker decodes at a time


def check(
    source: "str | os.PathLike[str] | Source | Dataset[Any] | tuple[Any, Any]",
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> "CheckReport":
    """Decode every picture of a source once and report on them.

    Nothing is kept of a picture but a digest of its pixels (16 bytes), a perceptual hash (32 bytes) and its size.

    Args:
        source: Anything that :func:`open_source` takes.
        workers: Threads that decode; by default one for each processor.
        progress: Called with the number of pictures seen so far.
        **options: Those of :func:`open_source`, such as ``depth``.

    Raises:
        DataError: if the source cannot be opened, or none of its pictures can be read.

    >>> pictures = torch.randint(0, 256, (6, 8, 8), dtype=torch.uint8)
    >>> report = check((pictures.repeat(2, 1, 1), torch.arange(12) // 4))
    >>> report.images, report.identities, len(report.duplicates)
    (12, 3, 6)
    """
    opened = open_source(source, **{"identities": 1, "skip_missing": True, **options})
    seen = _Seen([], [], [], [], {name: f"there is no file {name}" for name in opened.missing})
    blocks = torch.arange(len(opened)).split(_BLOCK)
    count = (os.cpu_count() or 1) if workers is None else workers
    for block in ahead(lambda index: [_look(opened, i) for i in index.tolist()], blocks, count):
        for index, found in block:
            seen.add(opened, index, found)
        if progress is not None:
            progress(len(seen.kept) + len(seen.unreadable))
    if not seen.kept:
        reason = next(iter(seen.unreadable.values()))
        raise CorruptDataError(f"none of the {len(opened)} pictures of {opened.name} can be read: {reason}")
    return _report(opened, seen)


@dataclass(frozen=True)
class Twins:
    """Pictures that are equal, or nearly so.

    ``names`` are the pictures, ``labels`` their identities and ``splits`` the splits they are in, each without repetition.

    >>> picture = torch.randint(0, 256, (1, 8, 8), dtype=torch.uint8)
    >>> twins = check((torch.cat([picture, 255 - picture, picture]), ["ann", "bob", "eve"])).duplicates[0]
    >>> print(twins, twins.labels)
    the arrays[0] = the arrays[2] ('ann', 'eve')
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    splits: tuple[str, ...]

    def __str__(self) -> str:
        return " = ".join(self.names[:SHOWN]) + (" = …" if len(self.names) > SHOWN else "")


@dataclass(frozen=True)
class CheckReport:
    """What :func:`check` found; ``print(report)`` says it in words, :meth:`to_json` as plain values.

    Attributes:
        source: Its name.
        images: How many pictures can be read.
        identities: How many identities have such a picture.
        per_identity: The least, the median and the largest number of pictures of an identity.
        singles: Identities with one picture.
        unreadable: Pictures that cannot be read, with the reason.
        sizes: (height, width, channels) and how many pictures have them, the most frequent first.
        median_size: The median height and the median width.
        duplicates: Groups of pictures whose pixels are all equal.
        near_duplicates: Groups of pictures that look the same and are not all equal.
        splits: Pictures and identities of each split.
        shared_identities: Identities that are in more than one split.
        readable: Positions of the pictures that can be read.

    >>> print(check((torch.randint(0, 256, (6, 8, 8), dtype=torch.uint8), ["ann", "bob"] * 3)))
    the arrays
      6 images of 2 identities: 3 images each
      sizes, height × width × channels: 8×8×1 (6 images)
      every image can be read, and none is there twice
    """

    source: str
    images: int
    identities: int
    per_identity: tuple[int, float, int]
    singles: tuple[str, ...]
    unreadable: dict[str, str]
    sizes: tuple[tuple[tuple[int, int, int], int], ...]
    median_size: tuple[int, int]
    duplicates: tuple[Twins, ...]
    near_duplicates: tuple[Twins, ...]
    splits: dict[str, tuple[int, int]]
    shared_identities: tuple[str, ...]
    readable: Int[Tensor, "n"]

    @property
    def across_identities(self) -> tuple[Twins, ...]:
        """The groups, equal or near, whose pictures are of more than one identity: a wrong label, most likely."""
        return tuple(group for group in (*self.duplicates, *self.near_duplicates) if len(group.labels) > 1)

    @property
    def across_splits(self) -> tuple[Twins, ...]:
        """The groups, equal or near, whose pictures are in more than one split: what is measured was trained on."""
        return tuple(group for group in (*self.duplicates, *self.near_duplicates) if len(group.splits) > 1)

    def to_json(self) -> dict[str, Any]:
        """Return every finding as plain values, for a file."""
        least, median, most = self.per_identity
        return {
            "format": FORMAT,
            "source": self.source,
            "images": self.images,
            "identities": self.identities,
            "images_per_identity": {"least": least, "median": median, "most": most},
            "identities_with_one_image": list(self.singles),
            "unreadable": self.unreadable,
            "sizes": [{"height": h, "width": w, "channels": c, "images": n} for (h, w, c), n in self.sizes],
            "median_size": list(self.median_size),
            "duplicates": [_plain(group) for group in self.duplicates],
            "near_duplicates": [_plain(group) for group in self.near_duplicates],
            "duplicates_across_identities": [_plain(group) for group in self.across_identities],
            "splits": {name: {"images": n, "identities": k} for name, (n, k) in self.splits.items()},
            "identities_in_several_splits": list(self.shared_identities),
            "duplicates_across_splits": [_plain(group) for group in self.across_splits],
        }

    def __str__(self) -> str:
        least, median, most = self.per_identity
        each = str(least) if least == most else f"{least} to {most} images each, {median:g} at the median"
        lines = [
            self.source,
            f"  {self.images} images of {self.identities} identities: {each if least < most else each + ' images each'}",
            f"  sizes, height × width × channels: {_sizes(self.sizes)}",
        ]
        if self.splits:
            parts = (f"{name} {n} images of {k} identities" for name, (n, k) in self.splits.items())
            lines.append(f"  splits: {'; '.join(parts)}")
        findings = (
            ("image cannot", "images cannot", "be read", [_reason(*found) for found in self.unreadable.items()]),
            ("identity has", "identities have", "one image only", self.singles),
            ("group", "groups", "of equal images", self.duplicates),
            ("group", "groups", "of nearly equal images", self.near_duplicates),
            ("of these groups is", "of these groups are", "of several identities", self.across_identities),
            ("of these groups is", "of these groups are", "in several splits", self.across_splits),
            ("identity is", "identities are", "in several splits", self.shared_identities),
        )
        inside = self.source.rstrip("/") + "/"  # names of files are read more easily from the source on
        for one, several, what, found in findings:
            if found:
                text = f"  {len(found)} {one if len(found) == 1 else several} {what}: {_listed(found)}"
                lines.append(text.replace(inside, ""))
        if not any(found for *_, found in findings):
            lines.append("  every image can be read, and none is there twice")
        return "\n".join(lines)

    __repr__ = __str__


def _reason(name: str, reason: str) -> str:
    """A file with the reason, which may name it too."""
    return f"{name} ({reason.partition(f'{name}: ')[2] or reason})"


@dataclass
class _Look:
    digest: bytes
    hash: bytes
    size: tuple[int, int, int]


@dataclass
class _Seen:
    """What is kept of the pictures, in the order of the source."""

    kept: list[int]
    digests: list[bytes]
    hashes: list[bytes]
    sizes: list[tuple[int, int, int]]
    unreadable: dict[str, str]

    def add(self, source: Source, index: int, found: "_Look | str") -> None:
        if isinstance(found, str):
            self.unreadable[source.records[index].name] = found
            return
        self.kept.append(index)
        self.digests.append(found.digest)
        self.hashes.append(found.hash)
        self.sizes.append(found.size)


def _look(source: Source, index: int) -> tuple[int, _Look | str]:
    try:
        record = source.records[index]
        pixels = eight_bit_pixels(source.image(index), record.box)
    except (DataError, ValueError) as error:
        return index, str(error)
    channels, height, width = pixels.shape
    return index, _Look(pixel_digest(pixels), difference_hash(pixels), (height, width, channels))


def _report(source: Source, seen: _Seen) -> CheckReport:
    records = [source.records[i] for i in seen.kept]
    counts = Counter(record.label for record in records)
    many = sorted(counts.values())
    by_split: dict[str, list[str]] = {}
    for record in records:
        if record.split is not None:
            by_split.setdefault(record.split, []).append(record.label)
    homes = Counter(label for labels in by_split.values() for label in set(labels))

    def twins(groups: Sequence[Sequence[int]]) -> tuple[Twins, ...]:
        return tuple(_twins([records[i] for i in group]) for group in groups)

    near = [g for g in near_groups(seen.hashes) if len({seen.digests[i] for i in g}) > 1]
    heights, widths = (sorted(size[axis] for size in seen.sizes) for axis in (0, 1))
    return CheckReport(
        source=source.name,
        images=len(records),
        identities=len(counts),
        per_identity=(many[0], float(torch.tensor(many).double().quantile(0.5)), many[-1]),
        singles=tuple(sorted(label for label, n in counts.items() if n == 1)),
        unreadable=seen.unreadable,
        sizes=tuple(Counter(seen.sizes).most_common()),
        median_size=(heights[len(heights) // 2], widths[len(widths) // 2]),
        duplicates=twins(same_groups(seen.digests)),
        near_duplicates=twins(near),
        splits={name: (len(labels), len(set(labels))) for name, labels in sorted(by_split.items())},
        shared_identities=tuple(sorted(label for label, n in homes.items() if n > 1)),
        readable=torch.tensor(seen.kept),
    )


def _twins(records: Sequence[Any]) -> Twins:
    labels = tuple(sorted({record.label for record in records}))
    splits = tuple(sorted({record.split for record in records if record.split is not None}))
    return Twins(tuple(record.name for record in records), labels, splits)


def _plain(group: Twins) -> dict[str, list[str]]:
    return {"images": list(group.names), "identities": list(group.labels), "splits": list(group.splits)}


def _listed(found: Sequence[object]) -> str:
    return "; ".join(map(str, found[:SHOWN])) + ("; …" if len(found) > SHOWN else "")


def _sizes(sizes: Sequence[tuple[tuple[int, int, int], int]]) -> str:
    shown = [f"{h}×{w}×{c} ({n} images)" for (h, w, c), n in sizes[:4]]
    return ", ".join(shown) + (f" and {len(sizes) - 4} others" if len(sizes) > 4 else "")
