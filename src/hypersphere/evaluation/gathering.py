"""Gathering of features from all processes."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..collectives import gather_rows


def gather_features(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], *, index: Int[Tensor, "n"] | None = None
) -> tuple[Float[Tensor, "m d"], Int[Tensor, "m"]]:
    """Return the features and labels of all processes on every process, in the order of the ranks.

    Shards may have different lengths and may be empty. Without a process group, the arguments are returned. All processes
    must call this function with the same dimension, dtype and device type.

    Args:
        features: Features of this process.
        labels: Identities of the features.
        index: Position of each sample in the dataset. If given, the result is in this order, and samples that a distributed
            sampler repeated to pad its shards are kept once, so that figures do not depend on the number of processes.

    >>> features, labels = gather_features(torch.eye(3), torch.tensor([5, 6, 5]), index=torch.tensor([2, 0, 2]))
    >>> features, labels
    (tensor([[0., 1., 0.], [1., 0., 0.]]), tensor([6, 5]))
    """
    if labels.shape != features.shape[:1] or (index is not None and index.shape != labels.shape):
        raise ValueError(
            f"labels and index must hold one entry for each of {len(features)} features, got {tuple(labels.shape)} and "
            f"{None if index is None else tuple(index.shape)}"
        )
    if index is not None and (index.is_floating_point() or index.is_complex()):
        raise ValueError(f"index must be integers, got {index.dtype}")
    features, labels = gather_rows(features.detach()), gather_rows(labels)
    if index is None:
        return features, labels
    index = gather_rows(index)
    order = index.argsort(stable=True)
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = index[order].diff() != 0
    return features[order[first]], labels[order[first]]
