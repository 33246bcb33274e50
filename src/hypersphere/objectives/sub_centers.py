"""Analysis of the sub-centers of a trained head: the dominant center of each class, and outlying centers and samples."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..geometry import angle
from .head import MarginSoftmax

OUTLYING_ANGLE = math.radians(75)
"""Angle to the dominant center beyond which a center or a sample is outlying; the 75° of sub-center ArcFace (Deng et al., 2020)."""


class SubCenters(NamedTuple):
    """The sub-centers of every class.

    Attributes:
        counts: Number of samples of the class that are nearest to each of its centers.
        dominant: The center with the most samples.
        angles: The angle of each center to the dominant one, in radians.

    >>> head = hs.ArcFace(2, 2, sub_centers=2)
    >>> head.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> measure_sub_centers(head, torch.tensor([[0.1, 1.0], [-1.0, 0.0]]), torch.tensor([0, 1])).counts
    tensor([[0, 1],
            [1, 0]])
    """

    counts: Int[Tensor, "c k"]
    dominant: Int[Tensor, "c"]
    angles: Float[Tensor, "c k"]

    def find_outlying(self, max_angle: float = OUTLYING_ANGLE) -> list[tuple[int, int]]:
        """Return the centers, as (class, center), that are more than ``max_angle`` radians from the dominant one."""
        return [(int(c), int(k)) for c, k in (self.angles > max_angle).nonzero()]


@torch.no_grad()
def measure_sub_centers(head: MarginSoftmax, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> SubCenters:
    """Count the samples nearest to each center of their own class, and measure the angles of the centers to the dominant one.

    Args:
        head: A trained head with sub-centers.
        features: The features of the training samples.
        labels: Their classes.

    Raises:
        ValueError: If a label is out of range, or their number is not that of the features.

    >>> head = hs.ArcFace(2, 2, sub_centers=2)
    >>> head.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [-1.0, 0.1]])
    >>> features = torch.tensor([[2.0, 0.1], [1.0, 0.0], [-1.0, 0.0]])
    >>> centers = measure_sub_centers(head, features, torch.tensor([0, 0, 1]))
    >>> centers.dominant, centers.find_outlying()
    (tensor([0, 0]), [(0, 1)])
    """
    nearest = _compute_angles(head, features, labels).argmin(-1)
    counts = torch.zeros(head.num_classes * head.sub_centers, dtype=torch.int64, device=labels.device)
    counts = counts.scatter_add(0, labels.long() * head.sub_centers + nearest, torch.ones_like(nearest))
    counts = counts.view(head.num_classes, head.sub_centers)
    rows, dominant = _get_centers(head), counts.argmax(-1)
    dominant_rows = rows[torch.arange(head.num_classes, device=rows.device), dominant]
    return SubCenters(counts, dominant, angle(dominant_rows.unsqueeze(1), rows))


@torch.no_grad()
def find_outlying_samples(
    head: MarginSoftmax,
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    dominant: Int[Tensor, "c"],
    max_angle: float = OUTLYING_ANGLE,
) -> Bool[Tensor, "n"]:
    """Find samples far from the dominant center of their class, whose labels are probably wrong.

    Args:
        head: A trained head with sub-centers.
        features: The features of the samples.
        labels: Their classes.
        dominant: The dominant centers from :func:`measure_sub_centers` on the whole training set.
        max_angle: Angle in radians beyond which a sample is outlying.

    Returns:
        Whether each sample is outlying.

    Raises:
        ValueError: If a label is out of range, or their number is not that of the features.

    >>> head = hs.ArcFace(2, 2, sub_centers=2)
    >>> head.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [-1.0, 0.1]])
    >>> find_outlying_samples(head, torch.eye(2), torch.tensor([0, 0]), torch.tensor([0, 0]))
    tensor([False,  True])
    """
    theta = _compute_angles(head, features, labels)
    return theta.gather(1, dominant[labels].unsqueeze(-1)).squeeze(-1) > max_angle


@torch.no_grad()
def keep_dominant(head: MarginSoftmax, dominant: Int[Tensor, "c"]) -> MarginSoftmax:
    """Keep only the dominant center of each class, in place. The head then has ``sub_centers = 1``.

    Create the optimizer after this call, because the weight becomes a new parameter.

    Args:
        head: A trained head with sub-centers.
        dominant: The dominant centers from :func:`measure_sub_centers`.

    Returns:
        The head itself.

    Raises:
        ValueError: If ``dominant`` does not have one valid index per class.

    >>> keep_dominant(hs.ArcFace(8, 5, sub_centers=3), torch.zeros(5, dtype=torch.long)).weight.shape
    torch.Size([5, 8])
    """
    if dominant.shape != (head.num_classes,) or dominant.min() < 0 or dominant.max() >= head.sub_centers:
        raise ValueError(
            f"dominant must hold {head.num_classes} numbers below sub_centers={head.sub_centers}, got {dominant!r}"
        )
    rows = _get_centers(head)[torch.arange(head.num_classes, device=head.weight.device), dominant]
    head.weight = nn.Parameter(rows.clone(), requires_grad=head.weight.requires_grad)
    head.sub_centers = 1
    return head


def _get_centers(head: MarginSoftmax) -> Tensor:
    return head.weight.detach().unflatten(0, (-1, head.sub_centers))


def _compute_angles(head: MarginSoftmax, features: Tensor, labels: Tensor) -> Tensor:
    if len(features) != len(labels) or (len(labels) and not 0 <= labels.min() <= labels.max() < head.num_classes):
        raise ValueError(f"labels must be in [0, {head.num_classes - 1}], one per feature, got {labels!r}")
    return angle(features.unsqueeze(1), _get_centers(head)[labels])
