"""Hard negatives: the nearest samples of other classes, and the nearest classes."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import normalize
from ._search import search


class HardNegatives(NamedTuple):
    """The nearest samples of other classes.

    Attributes:
        indices: The k negatives of each sample, nearest first; −1 where a sample has fewer than k.
        scores: Their cosines; −1 where there is no negative.

    >>> found = mine_hard_negatives(torch.eye(2), torch.tensor([0, 1]), k=1)
    >>> found.indices.flatten().tolist(), found.scores.flatten().tolist()
    ([1, 0], [0.0, 0.0])
    """

    indices: Int[Tensor, "n k"]
    scores: Float[Tensor, "n k"]


def mine_hard_negatives(features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], k: int = 10) -> HardNegatives:
    """Find the ``k`` nearest samples of other classes for every sample, by exact search.

    Cosines are computed in blocks, so memory does not grow with n². The number of neighbors searched is the size of the largest
    class plus k, so at least k of them belong to other classes.

    Args:
        features: Features of the training samples.
        labels: Their classes.
        k: The number of hard negatives per sample.

    Returns:
        Indices and cosines of the negatives.

    Raises:
        ValueError: If the shapes do not agree or ``k`` is below 1.

    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.8, 0.3], [0.0, 1.0]])
    >>> mine_hard_negatives(x, torch.tensor([0, 0, 1, 1]), k=1).indices.flatten().tolist()
    [2, 2, 1, 1]
    """
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ValueError(f"features (n, d) need n labels, got {tuple(features.shape)} and {tuple(labels.shape)}")
    if k < 1:
        raise ValueError(f"k must be an integer ≥ 1, got {k!r}")
    largest = int(labels.unique(return_counts=True)[1].max())
    cosines, found = search(features, features, min(largest + k, len(features)))
    is_other = labels[found] != labels[:, None]
    # A stable sort puts samples of other classes first and keeps the order of their cosines.
    order = (~is_other).to(torch.uint8).argsort(dim=1, stable=True)[:, :k]
    exists = is_other.gather(1, order)
    indices = found.gather(1, order).masked_fill(~exists, -1)
    scores = cosines.gather(1, order).masked_fill(~exists, -1)
    return HardNegatives(indices, scores)


def find_confusable_classes(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], k: int = 10
) -> Int[Tensor, "c k"]:
    """Return for each class the ``k`` classes with the nearest mean directions, for ``data.HardClassSampler``.

    Args:
        features: Features of the training samples, for example from an embedder trained before.
        labels: Their classes, 0 … C − 1, each at least once.
        k: The number of nearest classes, less than C.

    Returns:
        The nearest classes of each class, nearest first.

    Raises:
        ValueError: If a class has no sample, or ``k`` is not in [1, C − 1].

    >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> find_confusable_classes(x, torch.tensor([0, 1, 2]), k=1).tolist()
    [[1], [0], [1]]
    """
    counts = torch.bincount(labels)
    if not len(counts) or int(counts.min()) == 0:
        raise ValueError("labels must hold every class from 0 to the largest at least once")
    if not 1 <= k < len(counts):
        raise ValueError(f"k must be an integer in [1, {len(counts) - 1}], got {k!r}")
    directions = normalize(features.to(torch.promote_types(features.dtype, torch.float32)))
    means = torch.zeros(len(counts), features.shape[1], dtype=directions.dtype).index_add_(0, labels, directions.cpu())
    return mine_hard_negatives(means, torch.arange(len(counts)), k).indices
