"""Looking at the sub-centers of a trained head: which one carries a class, which samples and centers lie far from it."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..geometry import angle
from .head import MarginSoftmax

APART = math.radians(75)
"""How far from the dominant center counts as outlying: the 75° of sub-center ArcFace (Deng et al., 2020)."""


class SubCenters(NamedTuple):
    """The sub-centers of every class.

    Attributes:
        counts: How many samples of the class are nearest to each of its centers.
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

    def find_outlying(self, apart: float = APART) -> list[tuple[int, int]]:
        """Return the centers, as (class, center), that are more than ``apart`` radians from the dominant one."""
        return [(int(c), int(k)) for c, k in (self.angles > apart).nonzero()]


@torch.no_grad()
def measure_sub_centers(head: MarginSoftmax, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> SubCenters:
    """Count the samples at each center of their own class, and measure the centers against the dominant one.

    >>> head = hs.ArcFace(2, 2, sub_centers=2)
    >>> head.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [-1.0, 0.1]])
    >>> found = measure_sub_centers(head, torch.tensor([[2.0, 0.1], [1.0, 0.0], [-1.0, 0.0]]), torch.tensor([0, 0, 1]))
    >>> found.dominant, found.find_outlying()
    (tensor([0, 0]), [(0, 1)])
    """
    nearest = _angles(head, features, labels).argmin(-1)
    counts = torch.zeros(head.num_classes * head.sub_centers, dtype=torch.int64, device=labels.device)
    counts = counts.scatter_add(0, labels.long() * head.sub_centers + nearest, torch.ones_like(nearest))
    counts = counts.view(head.num_classes, head.sub_centers)
    rows, dominant = _centers(head), counts.argmax(-1)
    leaders = rows[torch.arange(head.num_classes, device=rows.device), dominant]
    return SubCenters(counts, dominant, angle(leaders.unsqueeze(1), rows))


@torch.no_grad()
def find_outlying_samples(
    head: MarginSoftmax,
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    dominant: Int[Tensor, "c"],
    apart: float = APART,
) -> Bool[Tensor, "n"]:
    """Find samples more than ``apart`` radians from the dominant center of their class: likely wrong labels.

    ``dominant`` is that of :func:`measure_sub_centers`, counted over the whole training set.

    >>> head = hs.ArcFace(2, 2, sub_centers=2)
    >>> head.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [-1.0, 0.1]])
    >>> find_outlying_samples(head, torch.eye(2), torch.tensor([0, 0]), torch.tensor([0, 0]))
    tensor([False,  True])
    """
    theta = _angles(head, features, labels)
    return theta.gather(1, dominant[labels].unsqueeze(-1)).squeeze(-1) > apart


@torch.no_grad()
def keep_dominant(head: MarginSoftmax, dominant: Int[Tensor, "c"]) -> MarginSoftmax:
    """Leave each class its dominant center only, in place; the head then has ``sub_centers = 1``. Returns the head.

    The weight is a new parameter: make the optimizer after this call.

    >>> keep_dominant(hs.ArcFace(8, 5, sub_centers=3), torch.zeros(5, dtype=torch.long)).weight.shape
    torch.Size([5, 8])
    """
    if dominant.shape != (head.num_classes,) or dominant.min() < 0 or dominant.max() >= head.sub_centers:
        raise ValueError(
            f"dominant must hold {head.num_classes} numbers below sub_centers={head.sub_centers}, got {dominant!r}"
        )
    rows = _centers(head)[torch.arange(head.num_classes, device=head.weight.device), dominant]
    head.weight = nn.Parameter(rows.clone(), requires_grad=head.weight.requires_grad)
    head.sub_centers = 1
    return head


def _centers(head: MarginSoftmax) -> Tensor:
    return head.weight.detach().unflatten(0, (-1, head.sub_centers))


def _angles(head: MarginSoftmax, features: Tensor, labels: Tensor) -> Tensor:
    if len(features) != len(labels) or (len(labels) and not 0 <= labels.min() <= labels.max() < head.num_classes):
        raise ValueError(f"labels must be in [0, {head.num_classes - 1}], one per feature, got {labels!r}")
    return angle(features.unsqueeze(1), _centers(head)[labels])
