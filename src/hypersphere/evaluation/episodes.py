"""N-way K-shot episodes as indices into features, drawn once, so that every method meets the same ones."""

from typing import NamedTuple

import torch
from jaxtyping import Int, Shaped
from torch import Tensor


class Episodes(NamedTuple):
    """Indices of support ``(episodes, ways, shots)`` and query ``(episodes, ways, queries)`` samples; a way is a class."""

    support: Int[Tensor, "episodes ways shots"]
    query: Int[Tensor, "episodes ways queries"]


def sample_episodes(
    labels: Shaped[Tensor, "..."], ways: int = 5, shots: int = 1, queries: int = 15, count: int = 600, *, seed: int = 0
) -> Episodes:
    """Draw ``count`` episodes: ``ways`` classes, then ``shots`` + ``queries`` different samples of each.

    Classes with too few samples take no part. Episode i depends on ``seed`` and i alone, so more episodes extend fewer.

    >>> episodes = sample_episodes(torch.arange(8).repeat(6), ways=4, shots=2, queries=3, count=10)
    >>> episodes.support.shape, episodes.query.shape
    (torch.Size([10, 4, 2]), torch.Size([10, 4, 3]))
    """
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(f"labels must be integers of shape (n,), got {labels.dtype} {tuple(labels.shape)}")
    if min(ways - 1, shots, queries, count) < 1:
        raise ValueError(f"ways must be ≥ 2 and shots, queries, count ≥ 1, got {ways}, {shots}, {queries}, {count}")
    sizes = labels.unique(return_counts=True)[1]
    order = labels.argsort(stable=True).cpu()
    first = (sizes.cumsum(0) - sizes).cpu()
    large = (sizes >= shots + queries).nonzero().squeeze(1).cpu()
    if len(large) < ways:
        raise ValueError(
            f"{ways} ways need as many classes of at least {shots + queries} samples, got {len(large)} of {len(sizes)}"
        )
    rows = []
    for i in range(count):
        generator = torch.Generator().manual_seed(mix_seed(seed, i))
        classes = large[torch.randperm(len(large), generator=generator)[:ways]]
        rows.append(
            torch.stack(
                [
                    order[first[c] + torch.randperm(int(sizes[c]), generator=generator)[: shots + queries]]
                    for c in classes.tolist()
                ]
            )
        )
    chosen = torch.stack(rows).to(labels.device)
    return Episodes(chosen[..., :shots], chosen[..., shots:])


def mix_seed(seed: int, index: int) -> int:
    """One seed of two numbers; neighbours give unrelated streams."""
    value = (seed * 0x9E3779B97F4A7C15 + index + 1) & (2**64 - 1)
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (value ^ (value >> 31)) >> 1
