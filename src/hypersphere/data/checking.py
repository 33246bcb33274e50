"""Checks of samples before training: unreadable and duplicate files, identities with one sample, leaks between splits."""

import os
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset

from .errors import CorruptDataError, DataError
from .loader import ahead
from .media import MEDIA, Inspection, find_medium, near_groups, same_groups
from .sources import Source, open_source

FORMAT = "hypersphere-check/1"
SHOWN = 8  # names of a kind that are printed
_BLOCK = 64  # samples that a worker decodes at a time


def check(
    source: "str | os.PathLike[str] | Source | Dataset[Any] | tuple[Any, Any]",
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> "CheckReport":
    """Decode every picture or recording of a source once and report on them.

    Only a perceptual hash of a picture (32 bytes) or a digest of a recording (16 bytes), the size and the findings of a sample
    are kept in memory. Pictures whose hash and size are not unique are decoded again, to compare digests of their pixels.

    Args:
        source: Anything that :func:`open_source` takes.
        workers: Threads that decode; by default one for each processor.
        progress: Called with the number of samples seen so far.
        **options: Those of :func:`open_source`, such as ``depth``.

    Raises:
        DataError: if the source cannot be opened, or none of its samples can be read.

    >>> pictures = torch.randint(0, 256, (6, 8, 8), dtype=torch.uint8)
    >>> report = check((pictures.repeat(2, 1, 1), torch.arange(12) // 4))
    >>> report.images, report.identities, len(report.duplicates)
    (12, 3, 6)
    """
    opened = open_source(source, **{"identities": 1, "skip_missing": True, **options})
    seen = _Seen([], [], {name: f"there is no file {name}" for name in opened.missing})
    blocks = torch.arange(len(opened)).split(_BLOCK)
    count = (os.cpu_count() or 1) if workers is None else workers
    for looked in ahead(lambda index: [_look(opened, i) for i in index.tolist()], blocks, count):
        for index, found in looked:
            seen.add(opened, index, found)
        if progress is not None:
            progress(len(seen.kept) + len(seen.unreadable))
    if not seen.kept:
        reason = next(iter(seen.unreadable.values()))
        raise CorruptDataError(f"none of the {len(opened)} samples of {opened.name} can be read: {reason}")
    groups = same_groups([_key(look.found) for look in seen.looks])
    alike = [seen.kept[i] for group in groups for i in group if seen.looks[i].found.digest is None]
    digests: dict[int, bytes | str] = {}
    parts = [alike[start : start + _BLOCK] for start in range(0, len(alike), _BLOCK)]
    for part in ahead(lambda index: [_digest(opened, i) for i in index], parts, count):
        digests.update(part)
    return _report(opened, seen, digests)


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
        images: How many samples can be read.
        identities: How many identities have such a sample.
        per_identity: The least, the median and the largest number of samples of an identity.
        singles: Identities with one sample.
        unreadable: Samples that cannot be read, with the reason.
        sizes: (height, width, channels) of pictures or (samples, rate, channels) of recordings, and how many have them, the most
            frequent first.
        median_size: The median of the first and of the second of these.
        duplicates: Groups of samples whose content is equal.
        near_duplicates: Groups of pictures that look the same and are not all equal.
        splits: Samples and identities of each split.
        shared_identities: Identities that are in more than one split.
        readable: Positions of the samples that can be read.
        noun: What the samples are: "picture", "recording" or "sample" for a mixture.
        summary: Their sizes in words.
        facts: Their sizes as JSON values.
        suspicious: Kind of finding, such as "silent", with the names of the samples.
        unused: Files and folders that are not used, by reason, such as HEIC files, videos and empty folders.

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
    noun: str = "picture"
    summary: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    suspicious: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def across_identities(self) -> tuple[Twins, ...]:
        """The groups of equal or similar pictures with more than one identity, most likely wrong labels."""
        return tuple(group for group in (*self.duplicates, *self.near_duplicates) if len(group.labels) > 1)

    @property
    def across_splits(self) -> tuple[Twins, ...]:
        """The groups of equal or similar pictures in more than one split, which are leaks between training and test."""
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
            "medium": self.noun,
            **self.facts,
            "suspicious": {kind: list(names) for kind, names in self.suspicious.items()},
            "unused": {why: list(names) for why, names in self.unused.items()},
            "duplicates": [_plain(group) for group in self.duplicates],
            "near_duplicates": [_plain(group) for group in self.near_duplicates],
            "duplicates_across_identities": [_plain(group) for group in self.across_identities],
            "splits": {name: {"images": n, "identities": k} for name, (n, k) in self.splits.items()},
            "identities_in_several_splits": list(self.shared_identities),
            "duplicates_across_splits": [_plain(group) for group in self.across_splits],
        }

    def __str__(self) -> str:
        one_sample = {"picture": "image"}.get(self.noun, self.noun)
        many = f"{one_sample}s"
        least, median, most = self.per_identity
        each = str(least) if least == most else f"{least} to {most} {many} each, {median:g} at the median"
        lines = [
            self.source,
            f"  {self.images} {many} of {self.identities} identities: {each if least < most else f'{each} {many} each'}",
            f"  {self.summary}",
        ]
        if self.splits:
            parts = (f"{name} {n} {many} of {k} identities" for name, (n, k) in self.splits.items())
            lines.append(f"  splits: {'; '.join(parts)}")
        findings = (
            (f"{one_sample} cannot", f"{many} cannot", "be read", [_reason(*f) for f in self.unreadable.items()]),
            *((f"{one_sample} is", f"{many} are", kind, names) for kind, names in self.suspicious.items()),
            ("identity has", "identities have", f"one {one_sample} only", self.singles),
            ("group", "groups", f"of equal {many}", self.duplicates),
            ("group", "groups", f"of nearly equal {many}", self.near_duplicates),
            ("of these groups is", "of these groups are", "of several identities", self.across_identities),
            ("of these groups is", "of these groups are", "in several splits", self.across_splits),
            ("identity is", "identities are", "in several splits", self.shared_identities),
        )
        inside = self.source.rstrip("/") + "/"  # shorten paths to be relative to the source
        for one, several, what, found in findings:
            if found:
                text = f"  {len(found)} {one if len(found) == 1 else several} {what}: {_format_list(found)}"
                lines.append(text.replace(inside, ""))
        for why, names in self.unused.items():
            lines.append(f"  not used: {why} ({len(names)}): {_format_list(names)}".replace(inside, ""))
        if not any(found for *_, found in findings):
            lines.append(f"  every {one_sample} can be read, and none is there twice")
        return "\n".join(lines)

    __repr__ = __str__


def _reason(name: str, reason: str) -> str:
    """Return a line with the file and the reason, which may also name the file."""
    return f"{name} ({reason.partition(f'{name}: ')[2] or reason})"


class _Look(NamedTuple):
    """The findings about one sample and the noun of its medium."""

    noun: str
    found: Inspection


@dataclass
class _Seen:
    """Findings about the samples, in the order of the source."""

    kept: list[int]
    looks: list[_Look]
    unreadable: dict[str, str]

    def add(self, source: Source, index: int, found: "_Look | str") -> None:
        if isinstance(found, str):
            self.unreadable[source.records[index].name] = found
            return
        self.kept.append(index)
        self.looks.append(found)


def _look(source: Source, index: int) -> tuple[int, _Look | str]:
    try:
        sample = source.sample(index)
        medium = find_medium(sample)
        return index, _Look(medium.noun, medium.inspect(sample, source.records[index].box))
    except (DataError, ValueError) as error:
        return index, str(error)


def _key(found: Inspection) -> tuple[Hashable, ...]:
    """Return a key that is equal for equal samples."""
    return found.size, found.near_hash, found.digest


def _digest(source: Source, index: int) -> tuple[int, bytes | str]:
    """Return a digest of the content. If the sample has become unreadable, return a text that equals no other digest."""
    try:
        sample = source.sample(index)
        return index, find_medium(sample).digest(sample, source.records[index].box)
    except (DataError, ValueError) as error:
        return index, f"{index}: {error}"


def _report(source: Source, seen: _Seen, digests: Mapping[int, bytes | str]) -> CheckReport:
    """Return the findings; ``digests`` are those of pictures whose size and perceptual hash are not unique."""
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

    found = [look.found for look in seen.looks]
    hashed = [i for i, one in enumerate(found) if one.near_hash is not None]
    hashes = [one.near_hash for one in found if one.near_hash is not None]
    groups = [[hashed[i] for i in group] for group in near_groups(hashes)] if hashes else []
    contents = [(_key(one), digests.get(i)) for i, one in zip(seen.kept, found, strict=True)]
    near = [group for group in groups if len({contents[i] for i in group}) > 1]
    sides = [sorted(one.size[axis] for one in found) for axis in (0, 1)]
    media = [medium for medium in MEDIA if any(look.noun == medium.noun for look in seen.looks)]
    summaries = [m.summarize([look.found for look in seen.looks if look.noun == m.noun]) for m in media]
    kinds = dict.fromkeys(kind for one in found for kind in one.findings)
    suspicious = {
        kind: tuple(r.name for r, one in zip(records, found, strict=True) if kind in one.findings) for kind in kinds
    }
    return CheckReport(
        source=source.name,
        images=len(records),
        identities=len(counts),
        per_identity=(many[0], float(torch.tensor(many).double().quantile(0.5)), many[-1]),
        singles=tuple(sorted(label for label, n in counts.items() if n == 1)),
        unreadable=seen.unreadable,
        sizes=tuple(Counter(one.size for one in found).most_common()),
        median_size=(sides[0][len(found) // 2], sides[1][len(found) // 2]),
        duplicates=twins(same_groups(contents)),
        near_duplicates=twins(near),
        splits={name: (len(labels), len(set(labels))) for name, labels in sorted(by_split.items())},
        shared_identities=tuple(sorted(label for label, n in homes.items() if n > 1)),
        readable=torch.tensor(seen.kept),
        noun=media[0].noun if len(media) == 1 else "sample",
        summary="\n  ".join(text for text, _ in summaries),
        facts={name: value for _, values in summaries for name, value in values.items()},
        suspicious=suspicious,
        unused=source.find_unused(),
    )


def _twins(records: Sequence[Any]) -> Twins:
    labels = tuple(sorted({record.label for record in records}))
    splits = tuple(sorted({record.split for record in records if record.split is not None}))
    return Twins(tuple(record.name for record in records), labels, splits)


def _plain(group: Twins) -> dict[str, list[str]]:
    return {"images": list(group.names), "identities": list(group.labels), "splits": list(group.splits)}


def _format_list(found: Sequence[object]) -> str:
    return "; ".join(map(str, found[:SHOWN])) + ("; …" if len(found) > SHOWN else "")
