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
        indices: (n, k), the nearest first; −1 if a sample has fewer than k.
        scores: Their cosines; −1 if there is none.

    >>> found = mine_hard_negatives(torch.eye(2), torch.tensor([0, 1]), k=1)
    >>> found.indices.flatten().tolist(), found.scores.flatten().tolist()
    ([1, 0], [0.0, 0.0])
    """

    indices: Int[Tensor, "n k"]
    scores: Float[Tensor, "n k"]


def mine_hard_negatives(features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], k: int = 10) -> HardNegatives:
    """Find the ``k`` nearest samples of other classes for every sample, by exact search.

    The search compares in blocks, so memory does not grow with n². It finds k more neighbors than the largest class has
    samples, so that at least k of them are of other classes.

    Args:
        features: Features of the training samples.
        labels: Their classes.
        k: The number of hard negatives per sample.

    Returns:
        Indices and cosines.

    Raises:
        ValueError: If shapes do not agree or ``k`` is below 1.

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
    other = labels[found] != labels[:, None]
    # A stable sort puts samples of other classes first and keeps the order of their cosines.
    order = (~other).to(torch.uint8).argsort(dim=1, stable=True)[:, :k]
    exists = other.gather(1, order)
    indices = found.gather(1, order).masked_fill(~exists, -1)
    scores = cosines.gather(1, order).masked_fill(~exists, -1)
    return HardNegatives(indices, scores)


def find_confusable_classes(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], k: int = 10
) -> Int[Tensor, "c k"]:
    """Return the ``k`` classes whose mean directions are nearest to that of each class, for ``data.HardClassSampler``.

    Args:
        features: Features of the training samples, such as those of a first fit.
        labels: Their classes, 0 … C − 1, each at least once.
        k: The number of classes, below C.

    Returns:
        The classes, the nearest first.

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
