"""Kinds of samples, pictures and recordings: their file endings, decoding, and inspection.

Equal and similar pictures are found by digests of their pixels and by perceptual hashes.
"""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8
from torch import Tensor
from torch.nn import functional as F

from .images import IMAGE_ENDINGS, decode_image
from .preprocessing import Region, eight_bit_pixels
from .recordings import MAX_SILENT_PEAK, RECORDING_ENDINGS, Recording, decode_recording

CLIPPED_LEVEL = 0.999  # higher samples, in shares of full scale, count as clipped
MAX_CLIPPED_SHARE = 1e-3  # of the samples of a recording; above it, the recording is reported as clipped
SHORT_SECONDS = 0.5  # shorter recordings are reported
HASH_SIDE = 16  # the perceptual hash compares neighbors in a picture of 16 rows and 17 columns: 256 bits
HASH_REFINEMENT = (
    4  # large pictures are first reduced in 8 bits to 4 times this size, so that rounding errors average out
)
DIGEST_BYTES = 16
HASH_WORDS = 8  # words of 32 bits by which similar hashes are found
MAX_HASH_DISTANCE = HASH_WORDS - 1  # bits; two hashes that differ in fewer bits than they have words share a word
MIN_BRIGHTNESS_STEP = (
    2.0  # smaller differences (of 255 levels) do not count as brighter, because of noise in flat areas
)
# The bits of a word are taken from the whole picture, because words of neighboring bits would often be zero.
_HASH_ORDER = np.random.Generator(np.random.Philox(0)).permutation(HASH_SIDE * HASH_SIDE)


@dataclass(frozen=True)
class Inspection:
    """Findings about one sample.

    Args:
        size: (height, width, channels) of a picture, (samples, rate, channels) of a recording.
        near_hash: Equal for equal samples, nearly equal for similar ones; None if the medium has no such hash.
        findings: What is suspicious, such as "clipped".
        digest: Equal for samples with equal content. None for pictures: :meth:`Medium.digest` is called only for pictures with
            the same ``near_hash``, because different pictures rarely have the same.
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
        """Return the findings about a decoded sample, or about the part of it in ``region``."""

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
        """Return true, because :data:`MEDIA` lists this kind last."""
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
        sizes = Counter(one.size for one in inspections).most_common()
        text = ", ".join(f"{h}×{w}×{c} ({n} images)" for (h, w, c), n in sizes[:4])
        others = f" and {len(sizes) - 4} others" if len(sizes) > 4 else ""
        entries = [{"height": h, "width": w, "channels": c, "images": n} for (h, w, c), n in sizes]
        heights, widths = (sorted(one.size[axis] for one in inspections) for axis in (0, 1))
        median = [heights[len(heights) // 2], widths[len(widths) // 2]]
        return f"sizes, height × width × channels: {text}{others}", {"sizes": entries, "median_size": median}


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
        level = np.abs(recording.samples)
        conditions = {
            "silent": float(level.max()) < MAX_SILENT_PEAK,
            f"shorter than {SHORT_SECONDS:g} s": recording.seconds < SHORT_SECONDS,
            "clipped": float((level >= CLIPPED_LEVEL).mean()) > MAX_CLIPPED_SHARE,
        }
        size = (len(recording.samples), recording.rate, recording.channels)
        findings = tuple(name for name, is_met in conditions.items() if is_met)
        return Inspection(size, None, findings, self.digest(recording))

    def digest(self, sample: Any, region: Region | None = None) -> bytes:
        """Return a digest of the samples and their rate."""
        recording = _cut(sample, region)
        digest = hashlib.blake2b(f"{recording.rate} {recording.samples.shape}".encode(), digest_size=DIGEST_BYTES)
        digest.update(np.ascontiguousarray(recording.samples).data)
        return digest.digest()

    def summarize(self, inspections: Sequence[Inspection]) -> tuple[str, Mapping[str, Any]]:
        """Return durations, sample rates and channels."""
        seconds = sorted(samples / rate for samples, rate, _ in (one.size for one in inspections))
        rates, channels = (Counter(one.size[axis] for one in inspections) for axis in (1, 2))
        low, median, high, total = seconds[0], seconds[len(seconds) // 2], seconds[-1], sum(seconds)
        parts = [
            f"durations: {low:.2f} to {high:.2f} s, {median:.2f} s at the median, {total / 60:.1f} min together",
            "rates: " + ", ".join(f"{rate} Hz ({n} recordings)" for rate, n in rates.most_common()),
            "channels: " + ", ".join(f"{count} ({n} recordings)" for count, n in channels.most_common()),
        ]
        values = {
            "seconds": {"least": low, "median": median, "most": high, "total": total},
            "rates": {str(rate): n for rate, n in rates.items()},
            "channels": {str(count): n for count, n in channels.items()},
        }
        return "\n  ".join(parts), values


def _cut(sample: Recording, region: Region | None) -> Recording:
    return sample if region is None or len(region) != 2 else sample.cut(*region)


MEDIA: tuple[Medium, ...] = (Recordings(), Pictures())
"""All kinds of samples, in the order in which :func:`find_medium` tries them."""

SAMPLE_ENDINGS = tuple(ending for medium in MEDIA for ending in medium.endings)
"""Endings of the files of samples."""


def find_medium(sample: Any) -> Medium:
    """Return the kind of a sample, given the bytes of its file or the decoded sample.

    >>> find_medium(b"fLaC").noun, find_medium(torch.zeros(1, 8, 8)).noun
    ('recording', 'picture')
    """
    return next(medium for medium in MEDIA if medium.recognizes(sample))


def decode_sample(content: bytes, name: str) -> Any:
    """Decode the bytes of a file. If they are not recognized as a recording, the ending of ``name`` determines the kind."""
    medium = find_medium(content)
    if medium.noun == "picture":
        medium = next((known for known in MEDIA if name.lower().endswith(known.endings)), medium)
    return medium.decode(content, name)


def pixel_digest(pixels: UInt8[Tensor, "c h w"]) -> bytes:
    """Return a digest of 16 bytes, equal for two pictures if all their pixels are equal.

    >>> pixel_digest(torch.zeros(1, 2, 3, dtype=torch.uint8)) == pixel_digest(torch.zeros(1, 3, 2, dtype=torch.uint8))
    False
    """
    # SHA-1 is fast on most processors, and collisions are no security risk here. The order (height, width, channels) needs
    # no copy, because it is that of decoders.
    digest = hashlib.sha1(repr(tuple(pixels.shape)).encode(), usedforsecurity=False)
    digest.update(pixels.permute(1, 2, 0).contiguous().numpy().data)
    return digest.digest()[:DIGEST_BYTES]


def difference_hash(pixels: UInt8[Tensor, "c h w"]) -> bytes:
    """Return 256 bits, one per cell of a 16×16 grid: whether the picture becomes brighter to the right of the cell.

    Saving a picture again as JPEG, or at another size, changes few bits. This is the common difference hash with four times
    as many bits, and differences below two gray levels do not count. Large pictures are reduced in 8-bit arithmetic first.

    >>> ramp = torch.arange(0, 255, 5, dtype=torch.uint8).expand(1, 40, 51)
    >>> difference_hash(ramp) == bytes([255] * 32), difference_hash(ramp.flip(2)) == bytes(32)
    (True, True)
    """
    # All pictures get the same memory layout, so that equal pictures have equal hashes. It is that of decoders and the fastest.
    whole = pixels.permute(1, 2, 0).contiguous().permute(2, 0, 1)[None]
    if min(pixels.shape[1:]) > HASH_REFINEMENT * (HASH_SIDE + 1):
        whole = _downsample(whole, (HASH_REFINEMENT * HASH_SIDE, HASH_REFINEMENT * (HASH_SIDE + 1)))
    small = _downsample(whole.float().mean(1, keepdim=True), (HASH_SIDE, HASH_SIDE + 1)).numpy()[0, 0]
    brighter = (np.diff(small, axis=1) >= MIN_BRIGHTNESS_STEP).ravel()
    return np.packbits(brighter[_HASH_ORDER]).tobytes()


def _downsample(pictures: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(pictures, size, mode="bilinear", antialias=True, align_corners=False)


def group_equal(digests: Sequence[Hashable]) -> list[list[int]]:
    """Return the positions of each digest that occurs more than once, in ascending order.

    >>> group_equal([b"a", b"b", b"a", b"c", b"b"])
    [[0, 2], [1, 4]]
    """
    members: dict[Hashable, list[int]] = {}
    for i, digest in enumerate(digests):
        members.setdefault(digest, []).append(i)
    return [group for group in members.values() if len(group) > 1]


def group_similar(hashes: Sequence[bytes]) -> list[list[int]]:
    """Return groups of similar hashes as positions in ascending order; a group may be linked by a chain of similar hashes.

    Two hashes are similar if at most 7 of their 256 bits differ, and at most a twelfth of the set bits of both together. The
    second condition excludes nearly empty pictures, which differ in few bits whatever their content. Pictures without edges
    are in no group. If at most 7 bits differ, at least one of the 8 words of 32 bits is equal, so it suffices to compare
    pictures with an equal word.

    >>> one, other = bytes([255] * 32), bytes([255] * 31 + [254])
    >>> group_similar([one, bytes(32), other, bytes([15] * 32)])
    [[0, 2]]
    """
    unique = sorted({digest for digest in hashes if any(digest)})
    words = np.frombuffer(b"".join(unique), dtype=np.uint32).reshape(-1, HASH_WORDS)
    bits = np.bitwise_count(words).sum(1)
    parent = list(range(len(unique)))
    for w in range(HASH_WORDS):
        order = np.argsort(words[:, w], kind="stable")
        starts = np.flatnonzero(np.diff(words[order, w])) + 1
        for bucket in np.split(order, starts) if len(order) else []:
            for i, j in _find_similar_pairs(words, bits, bucket):
                _merge_groups(parent, i, j)
    root = {digest: _find_root(parent, i) for i, digest in enumerate(unique)}
    members: dict[int, list[int]] = {}
    for position, digest in enumerate(hashes):
        if digest in root:
            members.setdefault(root[digest], []).append(position)
    return sorted(group for group in members.values() if len(group) > 1)


def _find_similar_pairs(words: np.ndarray, bits: np.ndarray, bucket: np.ndarray) -> list[tuple[int, int]]:
    """Return the pairs of similar hashes in a bucket, computed one row at a time to save memory."""
    pairs = []
    for k, i in enumerate(bucket[:-1]):
        rest = bucket[k + 1 :]
        distance = np.bitwise_count(words[rest] ^ words[i]).sum(1)
        is_near = (distance <= MAX_HASH_DISTANCE) & (12 * distance <= bits[rest].astype(np.int64) + bits[i])
        pairs += [(int(i), int(j)) for j in rest[is_near]]
    return pairs


def _find_root(parent: list[int], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def _merge_groups(parent: list[int], i: int, j: int) -> None:
    a, b = _find_root(parent, i), _find_root(parent, j)
    parent[max(a, b)] = min(a, b)


def is_recording(content: bytes) -> bool:
    """Return whether bytes begin like a sound file of a known format.

    >>> is_recording(b"RIFF....WAVEfmt "), is_recording(b"RIFF....WEBPVP8 "), is_recording(b"OggS")
    (True, False, True)
    """
    if content[:4] in (b"RIFF", b"RF64"):
        return content[8:12] == b"WAVE"
    if content[:4] == b"FORM":
        return content[8:12] in (b"AIFF", b"AIFC")
    if content[:3] == b"ID3" or content[:4] in (b"fLaC", b"OggS"):
        return True
    return len(content) > 1 and content[0] == 0xFF and content[1] & 0xE0 == 0xE0  # a frame of MPEG audio
