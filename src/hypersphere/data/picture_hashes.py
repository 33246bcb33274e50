"""Find equal and nearly equal pictures by a digest of the pixels and by a perceptual hash."""

import hashlib
from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import UInt8
from torch import Tensor
from torch.nn import functional as F

SIDE = 16  # the perceptual hash compares neighbors in a picture of 16 rows and 17 columns: 256 bits
FINE = 4  # times as many rows and columns are left by the reduction in 8 bits, whose rounding then averages out
DIGEST_BYTES = 16
WORDS = 8  # similar hashes are found by words of 32 bits
NEAR = WORDS - 1  # hashes that differ in fewer bits than there are words agree in at least one word
STEP = 2.0  # smallest difference (of 255 levels) that counts as brighter, so that noise in flat areas has no effect
# The bits of a word come from the whole picture, because words of neighboring bits would often be zero.
_ORDER = np.random.Generator(np.random.Philox(0)).permutation(SIDE * SIDE)


def pixel_digest(pixels: UInt8[Tensor, "c h w"]) -> bytes:
    """Return a digest of 16 bytes, equal for two pictures if all their pixels are equal.

    >>> pixel_digest(torch.zeros(1, 2, 3, dtype=torch.uint8)) == pixel_digest(torch.zeros(1, 3, 2, dtype=torch.uint8))
    False
    """
    # SHA-1 has special instructions on most processors, and collisions are no security risk here. Rows of
    # pixels are how decoders leave a picture in memory, so they are not copied.
    found = hashlib.sha1(repr(tuple(pixels.shape)).encode(), usedforsecurity=False)
    found.update(pixels.permute(1, 2, 0).contiguous().numpy().data)
    return found.digest()[:DIGEST_BYTES]


def difference_hash(pixels: UInt8[Tensor, "c h w"]) -> bytes:
    """Return 256 bits, one for each place of a 16×16 grid: whether the picture becomes brighter to the right there.

    Saving a picture again as JPEG, or at another size, changes few of them. It is the usual "difference hash" with four
    times as many bits and a dead zone of two levels. Large pictures are reduced in 8-bit arithmetic first.

    >>> ramp = torch.arange(0, 255, 5, dtype=torch.uint8).expand(1, 40, 51)
    >>> difference_hash(ramp) == bytes([255] * 32), difference_hash(ramp.flip(2)) == bytes(32)
    (True, True)
    """
    # In one memory layout, so that equal pictures have equal hashes. Decoders use this one, and resizing is fastest in it.
    whole = pixels.permute(1, 2, 0).contiguous().permute(2, 0, 1)[None]
    if min(pixels.shape[1:]) > FINE * (SIDE + 1):
        whole = _reduce(whole, (FINE * SIDE, FINE * (SIDE + 1)))
    small = _reduce(whole.float().mean(1, keepdim=True), (SIDE, SIDE + 1)).numpy()[0, 0]
    brighter = (np.diff(small, axis=1) >= STEP).ravel()
    return np.packbits(brighter[_ORDER]).tobytes()


def _reduce(pictures: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(pictures, size, mode="bilinear", antialias=True, align_corners=False)


def same_groups(digests: Sequence[Hashable]) -> list[list[int]]:
    """Return the positions of equal digests, of each digest that occurs more than once, in ascending order.

    >>> same_groups([b"a", b"b", b"a", b"c", b"b"])
    [[0, 2], [1, 4]]
    """
    members: dict[Hashable, list[int]] = {}
    for i, digest in enumerate(digests):
        members.setdefault(digest, []).append(i)
    return [group for group in members.values() if len(group) > 1]


def near_groups(hashes: Sequence[bytes]) -> list[list[int]]:
    """Return the positions of hashes that are linked by differences of at most 7 of their 256 bits, in ascending order.

    The differences must also be at most a twelfth of the set bits of both, since nearly empty pictures differ in few bits
    regardless of their content; pictures without any edge belong to no group. Of 8 words of 32 bits, 7 differences leave one untouched, so
    only pictures that share a word are compared, and nothing within the limit is missed.

    >>> one, other = bytes([255] * 32), bytes([255] * 31 + [254])
    >>> near_groups([one, bytes(32), other, bytes([15] * 32)])
    [[0, 2]]
    """
    unique = sorted({digest for digest in hashes if any(digest)})
    words = np.frombuffer(b"".join(unique), dtype=np.uint32).reshape(-1, WORDS)
    bits = np.bitwise_count(words).sum(1)
    parent = list(range(len(unique)))
    for w in range(WORDS):
        order = np.argsort(words[:, w], kind="stable")
        starts = np.flatnonzero(np.diff(words[order, w])) + 1
        for bucket in np.split(order, starts) if len(order) else []:
            for i, j in _close(words, bits, bucket):
                _join(parent, i, j)
    root = {digest: _root(parent, i) for i, digest in enumerate(unique)}
    members: dict[int, list[int]] = {}
    for position, digest in enumerate(hashes):
        if digest in root:
            members.setdefault(root[digest], []).append(position)
    return sorted(group for group in members.values() if len(group) > 1)


def _close(words: np.ndarray, bits: np.ndarray, bucket: np.ndarray) -> list[tuple[int, int]]:
    """Return the pairs of a bucket within the limit, one row at a time to save memory."""
    found = []
    for k, i in enumerate(bucket[:-1]):
        rest = bucket[k + 1 :]
        apart = np.bitwise_count(words[rest] ^ words[i]).sum(1)
        near = (apart <= NEAR) & (12 * apart <= bits[rest].astype(np.int64) + bits[i])
        found += [(int(i), int(j)) for j in rest[near]]
    return found


def _root(parent: list[int], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def _join(parent: list[int], i: int, j: int) -> None:
    a, b = _root(parent, i), _root(parent, j)
    parent[max(a, b)] = min(a, b)
