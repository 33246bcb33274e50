"""Kinds of samples: which files hold pictures and which hold recordings, and how each kind is decoded and inspected."""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from .images import IMAGE_ENDINGS, decode_image
from .picture_hashes import difference_hash, pixel_digest
from .preprocessing import Region, eight_bit_pixels
from .recordings import RECORDING_ENDINGS, Recording, decode_recording, is_recording

CLIPPED = 0.999  # share of full scale from which a sample counts as clipped
MAX_CLIPPED_SHARE = 1e-3
SILENT = 1e-4  # peak of a silent recording, −80 dB
SHORT_SECONDS = 0.5


@dataclass(frozen=True)
class Inspection:
    """Findings about one sample.

    Args:
        size: (height, width, channels) of a picture, (samples, rate, channels) of a recording.
        near_hash: Nearly equal for samples that look alike, and equal for equal ones; None if the medium has no such hash.
        findings: What is suspicious, such as "clipped".
        digest: Equal for samples with equal content. None if samples that differ rarely have an equal ``near_hash``: then
            :meth:`Medium.digest` is called only for those that have.
    """

    size: tuple[int, int, int]
    near_hash: bytes | None = None
    findings: tuple[str, ...] = ()
    digest: bytes | None = None


class Medium(ABC):
    """A kind of samples.

    A new kind is one subclass and one entry in ``MEDIA``.
    """

    noun: str
    plural: str
    endings: tuple[str, ...]
    """Endings of its files, in lower case."""

    @abstractmethod
    def recognizes(self, sample: Any) -> bool:
        """Return whether the bytes of a file, or a decoded sample, are of this kind."""

    @abstractmethod
    def decode(self, content: bytes, where: str) -> Any:
        """Decode the bytes of a file. Raise ``CorruptDataError`` with the name ``where`` if that fails."""

    @abstractmethod
    def inspect(self, sample: Any, region: Region | None = None) -> Inspection:
        """Return the findings about a decoded sample, or the part of it that ``region`` names."""

    @abstractmethod
    def digest(self, sample: Any, region: Region | None = None) -> bytes:
        """Return 16 bytes that are equal for samples with equal content."""

    @abstractmethod
    def summarize(self, inspections: Sequence[Inspection]) -> tuple[str, Mapping[str, Any]]:
        """Return one line about the sizes of samples, and the same as JSON values."""


class Pictures(Medium):
    """Pictures of all formats that :mod:`hypersphere.data.images` decodes."""

    noun, plural, endings = "picture", "pictures", IMAGE_ENDINGS

    def recognizes(self, sample: Any) -> bool:
        """Return true for everything that is not of another kind."""
        return True

    def decode(self, content: bytes, where: str) -> Any:
        """Return an upright 8-bit PIL picture."""
        return decode_image(content, where, None)

    def inspect(self, sample: Any, region: Region | None = None) -> Inspection:
        """Return the size and a perceptual hash."""
        pixels: Tensor = eight_bit_pixels(sample, region)
        channels, height, width = pixels.shape
        return Inspection((height, width, channels), difference_hash(pixels))

    def digest(self, sample: Any, region: Region | None = None) -> bytes:
        """Return a digest of the pixels."""
        return pixel_digest(eight_bit_pixels(sample, region))

    def summarize(self, inspections: Sequence[Inspection]) -> tuple[str, Mapping[str, Any]]:
        """Return the most frequent sizes."""
        sizes = Counter(found.size for found in inspections).most_common()
        shown = ", ".join(f"{h}×{w}×{c} ({n} images)" for (h, w, c), n in sizes[:4])
        others = f" and {len(sizes) - 4} others" if len(sizes) > 4 else ""
        listed = [{"height": h, "width": w, "channels": c, "images": n} for (h, w, c), n in sizes]
        heights, widths = (sorted(found.size[axis] for found in inspections) for axis in (0, 1))
        middle = [heights[len(heights) // 2], widths[len(widths) // 2]]
        return f"sizes, height × width × channels: {shown}{others}", {"sizes": listed, "median_size": middle}


class Recordings(Medium):
    """Recordings of all formats that :mod:`hypersphere.data.recordings` decodes."""

    noun, plural, endings = "recording", "recordings", RECORDING_ENDINGS

    def recognizes(self, sample: Any) -> bool:
        """Return whether bytes begin like a sound file, or a sample is a :class:`Recording`."""
        return is_recording(sample) if isinstance(sample, bytes) else isinstance(sample, Recording)

    def decode(self, content: bytes, where: str) -> Recording:
        """Return the recording."""
        return decode_recording(content, where)

    def inspect(self, sample: Any, region: Region | None = None) -> Inspection:
        """Return duration, rate and channels, a digest of the samples, and whether it is silent, short or clipped."""
        recording = _cut(sample, region)
        size = np.abs(recording.samples)
        peak = float(size.max())
        suspicious = {
            "silent": peak < SILENT,
            f"shorter than {SHORT_SECONDS:g} s": recording.seconds < SHORT_SECONDS,
            "clipped": peak >= SILENT and float((size >= CLIPPED).mean()) > MAX_CLIPPED_SHARE,
        }
        measures = (len(recording.samples), recording.rate, recording.channels)
        findings = tuple(name for name, found in suspicious.items() if found)
        return Inspection(measures, None, findings, self.digest(recording))

    def digest(self, sample: Any, region: Region | None = None) -> bytes:
        """Return a digest of the samples and their rate."""
        recording = _cut(sample, region)
        found = hashlib.blake2b(f"{recording.rate} {recording.samples.shape}".encode(), digest_size=16)
        found.update(np.ascontiguousarray(recording.samples).data)
        return found.digest()

    def summarize(self, inspections: Sequence[Inspection]) -> tuple[str, Mapping[str, Any]]:
        """Return durations, sample rates and channels."""
        seconds = sorted(samples / rate for samples, rate, _ in (found.size for found in inspections))
        rates, channels = (Counter(found.size[axis] for found in inspections) for axis in (1, 2))
        low, middle, high, total = seconds[0], seconds[len(seconds) // 2], seconds[-1], sum(seconds)
        parts = [
            f"durations: {low:.2f} to {high:.2f} s, {middle:.2f} s at the median, {total / 60:.1f} min together",
            "rates: " + ", ".join(f"{rate} Hz ({n} recordings)" for rate, n in rates.most_common()),
            "channels: " + ", ".join(f"{count} ({n} recordings)" for count, n in channels.most_common()),
        ]
        values = {
            "seconds": {"least": low, "median": middle, "most": high, "total": total},
            "rates": {str(rate): n for rate, n in rates.items()},
            "channels": {str(count): n for count, n in channels.items()},
        }
        return "\n  ".join(parts), values


def _cut(sample: Recording, region: Region | None) -> Recording:
    return sample if region is None or len(region) != 2 else sample.cut(*region)


MEDIA: tuple[Medium, ...] = (Recordings(), Pictures())
"""All kinds of samples, in the order in which they are asked."""

SAMPLE_ENDINGS = tuple(ending for medium in MEDIA for ending in medium.endings)
"""Endings of all files that hold a sample."""


def find_medium(sample: Any) -> Medium:
    """Return the kind of a sample, given the bytes of its file or the decoded sample.

    >>> find_medium(b"fLaC").noun, find_medium(torch.zeros(1, 8, 8)).noun
    ('recording', 'picture')
    """
    return next(medium for medium in MEDIA if medium.recognizes(sample))


def decode_sample(content: bytes, name: str) -> Any:
    """Decode the bytes of a file by their content; ``name``, also used in errors, decides if they begin like no known format."""
    medium = find_medium(content)
    if medium.noun == "picture":
        named = [known for known in MEDIA if name.lower().endswith(known.endings)]
        medium = named[0] if named else medium
    return medium.decode(content, name)
