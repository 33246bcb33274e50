"""Pairs for verification: drawn from labels, in identity-disjoint folds, the same on every platform."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from .streams import PAIR, Stream, identity_split


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs: sample ``first[i]`` against ``second[i]``, whether they are the ``same`` identity, and the ``fold`` they are in.

    >>> labels = torch.arange(6).repeat(4)
    >>> drawn = pairs(labels, positives=2, negatives=3)
    >>> len(drawn), torch.equal(drawn.same, labels[drawn.first] == labels[drawn.second])
    (5, True)
    """

    first: Int[Tensor, "n"]
    second: Int[Tensor, "n"]
    same: Bool[Tensor, "n"]
    fold: Int[Tensor, "n"]

    def __len__(self) -> int:
        return len(self.first)

    @property
    def index(self) -> Int[Tensor, "n 2"]:
        """The indices of both samples of each pair."""
        return torch.stack([self.first, self.second], dim=1)


def pairs(labels: Int[Tensor, "n"], positives: int = 300, negatives: int = 300, folds: int = 1, seed: int = 0) -> Pairs:
    """Draw ``positives`` pairs of one identity and ``negatives`` pairs of two identities per fold, uniformly without replacement.

    Each pair has ``first < second``. The result depends only on the arguments, on every platform.

    Args:
        labels: Identity of each sample.
        positives: Number of pairs of one identity per fold.
        negatives: Number of pairs of two identities per fold.
        folds: Number of folds. The identities are first divided among the folds, so that no identity is in two folds. LFW has
            10 folds of 300 + 300 pairs.
        seed: Seed of the folds and pairs.

    Raises:
        ValueError: If a fold has too few pairs of one or of two identities.

    >>> drawn = pairs(torch.arange(6).repeat(4), positives=2, negatives=3, folds=2)
    >>> drawn.same.tolist(), drawn.fold.tolist()
    ([True, True, False, False, False, True, True, False, False, False], [0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    """
    if min(positives, negatives) < 0 or folds < 1:
        raise ValueError(f"positives and negatives must be ≥ 0 and folds ≥ 1, got {positives}, {negatives}, {folds}")
    parts = identity_split(labels, [1 / folds] * folds, seed) if folds > 1 else (torch.arange(len(labels)),)
    drawn = []
    for fold, members in enumerate(parts):
        stream = Stream(seed, PAIR, fold)
        same = members[_draw_positive_pairs(labels[members], positives, stream)]
        other = members[_draw_negative_pairs(labels[members], negatives, stream)]
        drawn.append(torch.cat([same, other]))
    both = torch.cat(drawn).sort(dim=1).values
    flags = (torch.arange(positives + negatives) < positives).repeat(folds)
    return Pairs(both[:, 0], both[:, 1], flags, torch.arange(folds).repeat_interleave(positives + negatives))


def count_pairs(labels: Int[Tensor, "n"]) -> tuple[int, int]:
    """Return the number of pairs of one identity, and that of pairs of two identities.

    >>> count_pairs(torch.tensor([0, 0, 1]))
    (1, 2)
    """
    sizes = torch.unique(labels, return_counts=True)[1]
    same = int((sizes * (sizes - 1) // 2).sum())
    return same, len(labels) * (len(labels) - 1) // 2 - same


def _draw_positive_pairs(labels: Int[Tensor, "n"], count: int, stream: Stream) -> Int[Tensor, "count 2"]:
    """Draw pairs of one identity by their numbers: identity by identity, and within one (1,0), (2,0), (2,1), (3,0), …."""
    order = torch.argsort(labels, stable=True)
    sizes = torch.unique_consecutive(labels[order], return_counts=True)[1]
    ends = torch.cumsum(sizes * (sizes - 1) // 2, 0)
    available = int(ends[-1]) if len(ends) else 0
    if count > available:
        raise ValueError(f"positives must be at most {available}, the pairs of one identity in a fold, got {count}")
    number = stream.distinct(count, available)
    identity = torch.searchsorted(ends, number, right=True)
    number = number - (ends - sizes * (sizes - 1) // 2)[identity]  # number of the pair within its identity
    high, low = _unrank(number)
    starts = (torch.cumsum(sizes, 0) - sizes)[identity]
    return torch.stack([order[starts + high], order[starts + low]], dim=1)


def _draw_negative_pairs(labels: Int[Tensor, "n"], count: int, stream: Stream) -> Int[Tensor, "count 2"]:
    """Return the first ``count`` pairs of two identities in a random order of all pairs."""
    same, available = count_pairs(labels)
    total = same + available
    if count > available:
        raise ValueError(f"negatives must be at most {available}, the pairs of two identities in a fold, got {count}")
    if 4 * count > available:  # dense: shuffle all pairs
        high, low = _unrank(stream.permutation(total))
        both = torch.stack([high, low], dim=1)
        return both[labels[high] != labels[low]][:count]
    kept = torch.empty(0, 2, dtype=torch.long)
    seen: set[int] = set()
    while len(kept) < count:  # sparse: at most a quarter of the pairs is requested, so few draws are rejected
        number = [i for i in dict.fromkeys(stream.integers(count, total).tolist()) if i not in seen]
        seen.update(number)
        high, low = _unrank(torch.tensor(number, dtype=torch.long))
        both = torch.stack([high, low], dim=1)
        kept = torch.cat([kept, both[labels[high] != labels[low]]])[:count]
    return kept


def _unrank(number: Int[Tensor, "n"]) -> tuple[Int[Tensor, "n"], Int[Tensor, "n"]]:
    """Return (high, low) with high·(high − 1)/2 + low = number and low < high, exact in integers."""
    high = ((1 + (1 + 8 * number.double()).sqrt()) / 2).long()
    high = torch.where(high * (high - 1) // 2 > number, high - 1, high)
    high = torch.where(high * (high + 1) // 2 <= number, high + 1, high)
    return high, number - high * (high - 1) // 2
