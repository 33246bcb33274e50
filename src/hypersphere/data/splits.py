"""Splits by identity: no identity is in two parts."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from .streams import SPLIT, Stream


def identity_split(labels: Int[Tensor, "n"], fractions: Sequence[float], seed: int = 0) -> tuple[Int[Tensor, "_"], ...]:
    """Return the sample indices of one part for each fraction *of the identities*. All samples of an identity are in the same part.

    The fractions are ≥ 0 and sum to at most 1; a rest belongs to no part. Each part is in ascending order.

    >>> train, test = identity_split(torch.arange(10).repeat(3), [0.8, 0.2])
    >>> len(train), len(test), set((train % 10).tolist()) & set((test % 10).tolist())
    (24, 6, set())
    """
    if not fractions or min(fractions) < 0 or sum(fractions) > 1 + 1e-9:
        raise ValueError(f"fractions must be ≥ 0 and sum to at most 1, got {list(fractions)}")
    identities, owner = torch.unique(labels, return_inverse=True)
    place = torch.empty(len(identities), dtype=torch.long)
    place[Stream(seed, SPLIT).permutation(len(identities))] = torch.arange(len(identities))
    total, bounds = 0.0, [0]
    for fraction in fractions:
        total += fraction
        bounds.append(min(round(total * len(identities)), len(identities)))
    mine = place[owner]
    return tuple(torch.nonzero((mine >= low) & (mine < high)).flatten() for low, high in pairwise(bounds))
