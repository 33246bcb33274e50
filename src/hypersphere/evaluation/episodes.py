"""N-way K-shot episodes as indices into features. All methods use the same episodes."""

from typing import NamedTuple

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from ..data.samplers import EpisodeSampler


class Episodes(NamedTuple):
    """Indices of support ``(episodes, ways, shots)`` and query ``(episodes, ways, queries)`` samples; a way is a class.

    >>> labels = torch.arange(4).repeat(5)
    >>> episodes = sample_episodes(labels, ways=2, shots=1, queries=3, count=10)
    >>> bool((labels[episodes.query] == labels[episodes.support]).all())  # each way is one class
    True
    """

    support: Int[Tensor, "episodes ways shots"]
    query: Int[Tensor, "episodes ways queries"]


def sample_episodes(
    labels: Shaped[Tensor, "..."], ways: int = 5, shots: int = 1, queries: int = 15, count: int = 600, *, seed: int = 0
) -> Episodes:
    """Draw ``count`` episodes of ``ways`` classes with ``shots`` + ``queries`` different samples each.

    The episodes equal those of :class:`hypersphere.data.EpisodeSampler` with the same ``seed``. Classes with too few samples
    are not used. Episode i depends only on ``seed`` and i.

    >>> episodes = sample_episodes(torch.arange(8).repeat(6), ways=4, shots=2, queries=3, count=10)
    >>> episodes.support.shape, episodes.query.shape
    (torch.Size([10, 4, 2]), torch.Size([10, 4, 3]))
    """
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(f"labels must be integers of shape (n,), got {labels.dtype} {tuple(labels.shape)}")
    if min(ways - 1, shots, queries, count) < 1:
        raise ValueError(f"ways must be ≥ 2 and shots, queries, count ≥ 1, got {ways}, {shots}, {queries}, {count}")
    sampler = EpisodeSampler(labels, ways, shots, queries, count, seed)
    drawn = [sampler[i] for i in range(count)]
    return Episodes(
        torch.stack([episode.support for episode in drawn]).to(labels.device),
        torch.stack([episode.query for episode in drawn]).to(labels.device),
    )
