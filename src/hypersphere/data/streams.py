"""Counter-based random numbers and the splits drawn from them: the same on every platform and for any number of processes.

A stream is addressed by integers such as (seed, purpose, epoch). It can be read from any position without drawing the numbers before
it, because the generator (Philox) encrypts a counter. Only the raw 64-bit output of NumPy's generator is used, because NumPy guarantees
that it never changes. Uniform numbers and permutations are computed here, so no release of a library can change the pairs or episodes of
an experiment.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

# Purposes of streams; the numbers are part of every recorded experiment and must not change.
ORDER, AUGMENT, BATCH, EPISODE, PAIR, SPLIT, IMBALANCE, POINTS, SYNTHETIC = range(9)
FOLD, TEMPLATE, CLASSIFIER, NOISE, RESAMPLE = range(20, 25)  # used by the evaluation package
EVIDENCE = 40


class Stream:
    """The numbers at one address ``(seed, *path)``, from ``start`` on.

    >>> Stream(0, 1).uniforms(2).tolist() == Stream(0, 1).uniforms(2).tolist()
    True
    >>> sorted(Stream(7, 3).permutation(4).tolist())
    [0, 1, 2, 3]
    """

    def __init__(self, seed: int, *path: int, start: int = 0):
        if seed < 0 or min(path, default=0) < 0 or start < 0:
            raise ValueError(f"seed, path and start must be integers ≥ 0, got {seed}, {path}, {start}")
        self._philox = np.random.Philox(np.random.SeedSequence(seed, spawn_key=path))
        self._philox.advance(start // 4)  # one step of the counter gives four numbers
        self.raw(start % 4)

    def raw(self, count: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
        """Return the next ``count`` 64-bit integers."""
        return self._philox.random_raw(count) if count else np.empty(0, dtype=np.uint64)

    def uniforms(self, count: int) -> Float[Tensor, "count"]:
        """Return the next ``count`` numbers in [0, 1), float64 with 53 random bits."""
        return torch.from_numpy((self.raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53)

    def integers(self, count: int, high: int) -> Int[Tensor, "count"]:
        """Return ``count`` integers in [0, high), int64."""
        if not 1 <= high <= 2**53:
            raise ValueError(f"high must lie in 1 … 2⁵³, got {high}")
        return (self.uniforms(count) * high).long()

    def permutation(self, n: int) -> Int[Tensor, "n"]:
        """Return a uniformly random order of 0 … n − 1, int64: the order that sorts ``n`` random keys."""
        keys = self.raw(n) ^ np.uint64(1 << 63)  # in the order of signed integers, which PyTorch sorts by radix
        return torch.from_numpy(keys.view(np.int64)).sort(stable=True).indices

    def distinct(self, count: int, high: int) -> Int[Tensor, "count"]:
        """Return ``count`` different integers of [0, high) in random order; ``high`` may be too large to permute."""
        if count > high:
            raise ValueError(f"count must be at most high = {high}, got {count}")
        if high <= 4 * count + 1024:
            return self.permutation(high)[:count]
        kept = torch.empty(0, dtype=torch.long)
        while len(kept) < count:  # at most a quarter of the range is drawn, so each round has few duplicates
            drawn = torch.cat([kept, self.integers(count - len(kept), high)]).numpy()
            kept = torch.from_numpy(drawn[np.sort(np.unique(drawn, return_index=True)[1])])
        return kept


def identity_split(labels: Int[Tensor, "n"], fractions: Sequence[float], seed: int = 0) -> tuple[Int[Tensor, "_"], ...]:
    """Return the sample indices of one part for each fraction *of the identities*. All samples of an identity are in the same part.

    Args:
        labels: Identity of each sample.
        fractions: Shares of the identities, ≥ 0 and with a sum of at most 1. Remaining identities are in no part.
        seed: Seed of the split.

    Returns:
        The indices of the samples of each part, in ascending order.

    >>> train, test = identity_split(torch.arange(10).repeat(3), [0.8, 0.2])
    >>> len(train), len(test), set((train % 10).tolist()) & set((test % 10).tolist())
    (24, 6, set())
    """
    if not fractions or min(fractions) < 0 or sum(fractions) > 1 + 1e-9:
        raise ValueError(f"fractions must be ≥ 0 and sum to at most 1, got {list(fractions)}")
    identities, owner = torch.unique(labels, return_inverse=True)
    rank = torch.empty(len(identities), dtype=torch.long)  # position of each identity in a random order
    rank[Stream(seed, SPLIT).permutation(len(identities))] = torch.arange(len(identities))
    total, bounds = 0.0, [0]
    for fraction in fractions:
        total += fraction
        bounds.append(min(round(total * len(identities)), len(identities)))
    sample_rank = rank[owner]
    return tuple(torch.nonzero((sample_rank >= low) & (sample_rank < high)).flatten() for low, high in pairwise(bounds))
