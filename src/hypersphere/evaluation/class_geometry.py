"""Angles of features within and between classes."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import angle, cosine, normalize


class ClassAngles(NamedTuple):
    """Angles in radians, as :func:`class_angles` defines them.

    >>> x = torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.1, 1.0], [-0.1, 1.0]])
    >>> angles = class_angles(x, torch.tensor([0, 0, 1, 1]))
    >>> round(angles.intra, 3), round(angles.inter, 3)
    (0.1, 1.571)
    """

    intra: float
    inter: float
    nearest: float
    margin: float


def angular_fisher_score(features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> Float[Tensor, ""]:
    r"""Return S_w / S_b, the ratio of within-class to between-class scatter of the cosines; lower is better (eq. A.1).

    .. math:: S_w = Σ_i Σ_{x∈X_i} (1 − \cos⟨x, m_i⟩), \quad S_b = Σ_i n_i (1 − \cos⟨m_i, m⟩)

    with m_i the mean of the features of class i and m the mean of all features. At least two classes.

    >>> x = torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.1, 1.0], [-0.1, 1.0]])
    >>> angular_fisher_score(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.0169)
    """
    features, classes, counts = _number_classes(features, labels)
    means = _compute_means(features, classes, counts)
    within = (1 - cosine(features, means[classes])).sum()
    between = (counts * (1 - cosine(means, features.mean(0)))).sum()
    return within / between


def class_angles(features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], *, margin: bool = True) -> ClassAngles:
    r"""Measure the width of classes, the distances between them, and the margin as angles (2.3.5, figure 2.10).

    The center of a class is the mean of the directions of its features.

    - ``intra``: mean angle between a feature and the center of its class;
    - ``inter``: mean angle between the centers of two different classes;
    - ``nearest``: smallest angle between the centers of two different classes;
    - ``margin``: smallest angle between features of different classes minus largest angle between features of one class.
      If it is positive, the criterion of 2.3.5 holds: every feature is nearer to all features of its class than to any
      feature of another class.

    Args:
        features: Features ``(n, d)``.
        labels: Class of each feature.
        margin: Whether to compute the margin, which needs all pairs. Without it, the margin is NaN, and the time is linear in n.

    >>> x = torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.1, 1.0], [-0.1, 1.0]])
    >>> round(class_angles(x, torch.tensor([0, 0, 1, 1])).margin, 4)
    1.1721
    """
    features, classes, counts = _number_classes(features, labels)
    centers = _compute_means(normalize(features), classes, counts)
    between = angle(centers, centers, pairwise=True)[~torch.eye(len(centers), dtype=torch.bool, device=features.device)]
    widest, closest = _find_extreme_angles(features, classes) if margin else (math.nan, math.nan)
    return ClassAngles(
        angle(features, centers[classes]).mean().item(), between.mean().item(), between.min().item(), closest - widest
    )


def _find_extreme_angles(features: Tensor, classes: Tensor, rows: int = 512) -> tuple[float, float]:
    """Return the largest angle within a class and the smallest between classes, computed in chunks of rows.

    A matrix of cosines selects the farthest feature of the same class and the nearest feature of another class. Only the
    angles to these two features are computed.
    """
    directions = normalize(features)
    widest, closest = 0.0, math.pi
    for start in range(0, len(features), rows):
        cosines = directions[start : start + rows] @ directions.T
        same = classes[start : start + rows, None] == classes
        farthest, nearest = cosines.masked_fill(~same, 2).argmin(1), cosines.masked_fill_(same, -2).argmax(1)
        chunk = features[start : start + rows]
        widest = max(widest, angle(chunk, features[farthest]).max().item())
        closest = min(closest, angle(chunk, features[nearest]).min().item())
    return widest, closest


def _number_classes(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return features in float32 or better, classes numbered from 0 without gaps, and the sizes of the classes."""
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ValueError(f"features (n, d) need n labels, got {tuple(features.shape)} and {tuple(labels.shape)}")
    names, classes, counts = labels.unique(return_inverse=True, return_counts=True)
    if len(names) < 2:
        raise ValueError(f"labels must hold at least two classes, got {len(names)}")
    return features.to(torch.promote_types(features.dtype, torch.float32)), classes, counts


def _compute_means(vectors: Tensor, classes: Tensor, counts: Tensor) -> Tensor:
    sums = vectors.new_zeros(len(counts), vectors.shape[1]).index_add_(0, classes, vectors)
    return sums / counts.unsqueeze(-1)
