"""Checks of samples before training: unreadable and duplicate files, identities with one sample, leaks between splits."""

import os
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from statistics import median
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset

from .errors import CorruptDataError, DataError
from .loader import map_ahead
from .media import MEDIA, Inspection, find_medium, group_equal, group_similar
from .sources import Source, open_source

FORMAT = "hypersphere-check/1"
MAX_NAMES_SHOWN = 8  # per kind of finding in the printed report
_BLOCK_SIZE = 64  # samples per task of a worker


def check(
    source: "str | os.PathLike[str] | Source | Dataset[Any] | tuple[Any, Any]",
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> "CheckReport":
    """Decode every sample of a source and report unreadable files, duplicates, sizes and suspicious samples.

    Memory holds only the size and the findings of each sample, and a perceptual hash (32 bytes) of a picture or a digest (16
    bytes) of a recording. Pictures whose hash and size are not unique are decoded a second time, to compare their pixels.

    Args:
        source: Anything that :func:`open_source` accepts.
        workers: Number of decoding threads; by default one per processor.
        progress: Called with the number of samples decoded so far.
        **options: Options of :func:`open_source`, such as ``depth``.

    Raises:
        DataError: If the source cannot be opened, or none of its samples can be read.

    >>> pictures = torch.randint(0, 256, (6, 8, 8), dtype=torch.uint8)
    >>> report = check((pictures.repeat(2, 1, 1), torch.arange(12) // 4))
    >>> report.images, report.identities, len(report.duplicates)
    (12, 3, 6)
    """
    opened = open_source(source, **{"identities": 1, "skip_missing": True, **options})
    findings = _Findings([], [], {name: f"there is no file {name}" for name in opened.missing})
    blocks = torch.arange(len(opened)).split(_BLOCK_SIZE)
    count = (os.cpu_count() or 1) if workers is None else workers
    for block in map_ahead(lambda index: [_inspect_sample(opened, i) for i in index.tolist()], blocks, count):
        for index, finding in block:
            findings.add(opened, index, finding)
        if progress is not None:
            progress(len(findings.positions) + len(findings.unreadable))
    if not findings.positions:
        reason = next(iter(findings.unreadable.values()))
        raise CorruptDataError(f"none of the {len(opened)} samples of {opened.name} can be read: {reason}")
    groups = group_equal([_get_key(finding.inspection) for finding in findings.readable])
    # Equal hashes do not prove equal pixels, so compute digests of these pictures.
    ambiguous = [
        findings.positions[i] for group in groups for i in group if findings.readable[i].inspection.digest is None
    ]
    digests: dict[int, bytes | str] = {}
    parts = [ambiguous[start : start + _BLOCK_SIZE] for start in range(0, len(ambiguous), _BLOCK_SIZE)]
    for part in map_ahead(lambda index: [_digest_sample(opened, i) for i in index], parts, count):
        digests.update(part)
    return _build_report(opened, findings, digests)


@dataclass(frozen=True)
class Twins:
    """A group of equal or similar samples.

    Args:
        names: The samples.
        labels: Their distinct identities.
        splits: Their distinct splits.

    >>> picture = torch.randint(0, 256, (1, 8, 8), dtype=torch.uint8)
    >>> twins = check((torch.cat([picture, 255 - picture, picture]), ["ann", "bob", "eve"])).duplicates[0]
    >>> print(twins, twins.labels)
    the arrays[0] = the arrays[2] ('ann', 'eve')
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    splits: tuple[str, ...]

    def __str__(self) -> str:
        return " = ".join(self.names[:MAX_NAMES_SHOWN]) + (" = …" if len(self.names) > MAX_NAMES_SHOWN else "")


@dataclass(frozen=True)
class CheckReport:
    """The findings of :func:`check`. ``print(report)`` shows them as text; :meth:`to_json` returns them as plain values.

    Attributes:
        source: Name of the source.
        images: Number of readable samples.
        identities: Number of identities with at least one readable sample.
        per_identity: Minimum, median and maximum number of samples per identity.
        singles: Identities with exactly one sample.
        unreadable: Unreadable samples by name, with the reason.
        sizes: (height, width, channels) of pictures or (samples, rate, channels) of recordings with the number of samples,
            most frequent first.
        median_size: Median height and width of pictures, or median number of samples and sample rate of recordings.
        duplicates: Groups of samples with equal content.
        near_duplicates: Groups of pictures that look the same and are not all equal.
        splits: Number of samples and of identities per split.
        shared_identities: Identities in more than one split.
        readable: Positions of the readable samples.
        noun: Kind of the samples: "picture", "recording", or "sample" for a mixture.
        summary: Sizes of the samples as text.
        facts: Sizes of the samples as JSON values.
        suspicious: Names of suspicious samples by kind of finding, such as "silent".
        unused: Unused files and folders by reason, such as HEIC files, videos and empty folders.

    >>> print(check((torch.randint(0, 256, (6, 8, 8), dtype=torch.uint8), ["ann", "bob"] * 3)))
    the arrays
      6 images of 2 identities: 3 images each
      sizes, height × width × channels: 8×8×1 (6 images)
      every image can be read, and there are no duplicates
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
        """Groups of equal or similar samples with more than one identity, most likely wrong labels."""
        return tuple(group for group in (*self.duplicates, *self.near_duplicates) if len(group.labels) > 1)

    @property
    def across_splits(self) -> tuple[Twins, ...]:
        """Groups of equal or similar samples in more than one split: leaks between training and test."""
        return tuple(group for group in (*self.duplicates, *self.near_duplicates) if len(group.splits) > 1)

    def to_json(self) -> dict[str, Any]:
        """Return all findings as JSON values."""
        least, middle, most = self.per_identity
        return {
            "format": FORMAT,
            "source": self.source,
            "images": self.images,
            "identities": self.identities,
            "images_per_identity": {"least": least, "median": middle, "most": most},
            "identities_with_one_image": list(self.singles),
            "unreadable": self.unreadable,
            "medium": self.noun,
            **self.facts,
            "suspicious": {kind: list(names) for kind, names in self.suspicious.items()},
            "unused": {why: list(names) for why, names in self.unused.items()},
            "duplicates": [_twins_to_json(group) for group in self.duplicates],
            "near_duplicates": [_twins_to_json(group) for group in self.near_duplicates],
            "duplicates_across_identities": [_twins_to_json(group) for group in self.across_identities],
            "splits": {name: {"images": n, "identities": k} for name, (n, k) in self.splits.items()},
            "identities_in_several_splits": list(self.shared_identities),
            "duplicates_across_splits": [_twins_to_json(group) for group in self.across_splits],
        }

    def __str__(self) -> str:
        noun = {"picture": "image"}.get(self.noun, self.noun)
        nouns = f"{noun}s"
        least, middle, most = self.per_identity
        each = f"{least} {nouns} each" if least == most else f"{least} to {most} {nouns} each, {middle:g} at the median"
        lines = [
            self.source,
            f"  {self.images} {nouns} of {self.identities} identities: {each}",
            f"  {self.summary}",
        ]
        if self.splits:
            parts = (f"{name} {n} {nouns} of {k} identities" for name, (n, k) in self.splits.items())
            lines.append(f"  splits: {'; '.join(parts)}")
        findings = (
            (f"{noun} cannot", f"{nouns} cannot", "be read", list(starmap(_format_reason, self.unreadable.items()))),
            *((f"{noun} is", f"{nouns} are", kind, names) for kind, names in self.suspicious.items()),
            ("identity has", "identities have", f"one {noun} only", self.singles),
            ("group", "groups", f"of equal {nouns}", self.duplicates),
            ("group", "groups", f"of nearly equal {nouns}", self.near_duplicates),
            ("of these groups is", "of these groups are", "of several identities", self.across_identities),
            ("of these groups is", "of these groups are", "in several splits", self.across_splits),
            ("identity is", "identities are", "in several splits", self.shared_identities),
        )
        prefix = self.source.rstrip("/") + "/"  # removed to show paths relative to the source
        for singular, plural, what, items in findings:
            if items:
                text = f"  {len(items)} {singular if len(items) == 1 else plural} {what}: {_format_list(items)}"
                lines.append(text.replace(prefix, ""))
        for why, names in self.unused.items():
            lines.append(f"  not used: {why} ({len(names)}): {_format_list(names)}".replace(prefix, ""))
        if not any(items for *_, items in findings):
            lines.append(f"  every {noun} can be read, and there are no duplicates")
        return "\n".join(lines)

    __repr__ = __str__


def _format_reason(name: str, reason: str) -> str:
    """Return the file and the reason as one line, without naming the file twice."""
    return f"{name} ({reason.partition(f'{name}: ')[2] or reason})"


class _Finding(NamedTuple):
    """The inspection of one sample, and the noun of its medium."""

    noun: str
    inspection: Inspection


@dataclass
class _Findings:
    """Positions and findings of the readable samples in the order of the source, and reasons for the unreadable ones."""

    positions: list[int]
    readable: list[_Finding]
    unreadable: dict[str, str]

    def add(self, source: Source, index: int, finding: "_Finding | str") -> None:
        if isinstance(finding, str):
            self.unreadable[source.records[index].name] = finding
            return
        self.positions.append(index)
        self.readable.append(finding)


def _inspect_sample(source: Source, index: int) -> tuple[int, _Finding | str]:
    """Return the position and the finding, or the reason why the sample cannot be read."""
    try:
        sample = source.sample(index)
        medium = find_medium(sample)
        return index, _Finding(medium.noun, medium.inspect(sample, source.records[index].box))
    except (DataError, ValueError) as error:
        return index, str(error)


def _get_key(inspection: Inspection) -> tuple[Hashable, ...]:
    """Return a key that is equal for equal samples."""
    return inspection.size, inspection.near_hash, inspection.digest


def _digest_sample(source: Source, index: int) -> tuple[int, bytes | str]:
    """Return the position and a digest of the content; for a sample that has become unreadable, a unique text."""
    try:
        sample = source.sample(index)
        return index, find_medium(sample).digest(sample, source.records[index].box)
    except (DataError, ValueError) as error:
        return index, f"{index}: {error}"


def _build_report(source: Source, findings: _Findings, digests: Mapping[int, bytes | str]) -> CheckReport:
    """Build the report; ``digests`` holds the pictures whose size and perceptual hash are not unique, by position."""
    records = [source.records[i] for i in findings.positions]
    counts = Counter(record.label for record in records)
    sorted_counts = sorted(counts.values())
    by_split: dict[str, list[str]] = {}
    for record in records:
        if record.split is not None:
            by_split.setdefault(record.split, []).append(record.label)
    splits_per_label = Counter(label for labels in by_split.values() for label in set(labels))

    def make_twins(groups: Sequence[Sequence[int]]) -> tuple[Twins, ...]:
        return tuple(_build_twins([records[i] for i in group]) for group in groups)

    inspections = [finding.inspection for finding in findings.readable]
    hashed = [i for i, one in enumerate(inspections) if one.near_hash is not None]
    hashes = [one.near_hash for one in inspections if one.near_hash is not None]
    groups = [[hashed[i] for i in group] for group in group_similar(hashes)] if hashes else []
    contents = [(_get_key(one), digests.get(i)) for i, one in zip(findings.positions, inspections, strict=True)]
    near = [group for group in groups if len({contents[i] for i in group}) > 1]
    dimensions = [sorted(one.size[axis] for one in inspections) for axis in (0, 1)]
    media = [medium for medium in MEDIA if any(finding.noun == medium.noun for finding in findings.readable)]
    summaries = [m.summarize([f.inspection for f in findings.readable if f.noun == m.noun]) for m in media]
    kinds = dict.fromkeys(kind for one in inspections for kind in one.findings)
    suspicious = {
        kind: tuple(r.name for r, one in zip(records, inspections, strict=True) if kind in one.findings)
        for kind in kinds
    }
    return CheckReport(
        source=source.name,
        images=len(records),
        identities=len(counts),
        per_identity=(sorted_counts[0], float(median(sorted_counts)), sorted_counts[-1]),
        singles=tuple(sorted(label for label, n in counts.items() if n == 1)),
        unreadable=findings.unreadable,
        sizes=tuple(Counter(one.size for one in inspections).most_common()),
        median_size=(dimensions[0][len(dimensions[0]) // 2], dimensions[1][len(dimensions[1]) // 2]),
        duplicates=make_twins(group_equal(contents)),
        near_duplicates=make_twins(near),
        splits={name: (len(labels), len(set(labels))) for name, labels in sorted(by_split.items())},
        shared_identities=tuple(sorted(label for label, n in splits_per_label.items() if n > 1)),
        readable=torch.tensor(findings.positions),
        noun=media[0].noun if len(media) == 1 else "sample",
        summary="\n  ".join(text for text, _ in summaries),
        facts={name: value for _, values in summaries for name, value in values.items()},
        suspicious=suspicious,
        unused=source.find_unused(),
    )


def _build_twins(records: Sequence[Any]) -> Twins:
    labels = tuple(sorted({record.label for record in records}))
    splits = tuple(sorted({record.split for record in records if record.split is not None}))
    return Twins(tuple(record.name for record in records), labels, splits)


def _twins_to_json(group: Twins) -> dict[str, list[str]]:
    return {"images": list(group.names), "identities": list(group.labels), "splits": list(group.splits)}


def _format_list(items: Sequence[object]) -> str:
    return "; ".join(map(str, items[:MAX_NAMES_SHOWN])) + ("; …" if len(items) > MAX_NAMES_SHOWN else "")
