"""Templates, which combine the features of several images of a person, as in YTF and IJB."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ..geometry import norm, normalize
from .ranking import check_ids


class Templates(NamedTuple):
    """Unit features ``(templates, d)``, their ``ids`` in ascending order, and their numbers of images ``counts``.

    >>> combined = templates(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 5.0]]), torch.tensor([7, 7, 3]))
    >>> combined.ids.tolist(), combined.counts.tolist(), combined.features.shape
    ([3, 7], [1, 2], torch.Size([2, 2]))
    """

    features: Float[Tensor, "t d"]
    ids: Int[Tensor, "t"]
    counts: Int[Tensor, "t"]


def templates(
    features: Float[Tensor, "n d"],
    ids: Shaped[Tensor, "..."],
    how: Literal["mean", "max", "quality"] = "mean",
    *,
    quality: Float[Tensor, "n"] | None = None,
) -> Templates:
    r"""Combine all features with the same id (frames of a video, photographs of a person) into one unit feature.

    Args:
        features: Features ``(n, d)`` of images.
        ids: Template of each image, integers; in a video verification protocol, the number of the video.
        how: ``"mean"`` takes the mean of the directions x̂; ``"max"`` the largest value of each coordinate of x̂;
            ``"quality"`` the mean weighted by quality, Σ q x̂ / Σ q.
        quality: Weight ≥ 0 of each image, for ``"quality"`` only. None uses the lengths of the features: margin heads
            that do not normalize features give longer features to images that are easier to recognize.

    Returns:
        :class:`Templates`, whose features can be passed to :func:`pair_scores`, :func:`identification` and other measures.

    Raises:
        ValueError: If ``how`` is unknown, or quality is negative, not finite, or zero for all images of a template.

    >>> images = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 5.0]])
    >>> templates(images, torch.tensor([7, 7, 3])).features
    tensor([[0.0000, 1.0000], [0.7071, 0.7071]])
    >>> templates(images, torch.tensor([7, 7, 3]), "quality").features
    tensor([[0.0000, 1.0000], [0.8944, 0.4472]])
    """
    ids = check_ids("template", ids, features)
    if how not in ("mean", "max", "quality"):
        raise ValueError(f"how must be 'mean', 'max' or 'quality', got {how!r}")
    if quality is not None and how != "quality":
        raise ValueError(f"quality is used by how='quality' only, got how={how!r}")
    if not features.isfinite().all():
        raise ValueError("features must be finite, got NaN or infinity")
    x = features.detach().to(torch.promote_types(features.dtype, torch.float32))
    template_ids, owner, counts = ids.unique(return_inverse=True, return_counts=True)
    directions = normalize(x)
    index = owner[:, None].expand_as(directions)
    if how == "max":
        pooled = directions.new_zeros(len(template_ids), x.shape[1]).scatter_reduce_(
            0, index, directions, "amax", include_self=False
        )
    else:
        weight = (
            _compute_weights(x, quality, owner, len(template_ids)) if how == "quality" else torch.ones_like(x[:, 0])
        )
        pooled = directions.new_zeros(len(template_ids), x.shape[1]).index_add_(0, owner, weight[:, None] * directions)
    return Templates(normalize(pooled).to(features.dtype), template_ids, counts)


def _compute_weights(x: Tensor, quality: Tensor | None, owner: Tensor, templates: int) -> Float[Tensor, "n"]:
    weight = norm(x) if quality is None else quality.detach().to(x)
    if weight.shape != x.shape[:1] or not (weight.isfinite() & (weight >= 0)).all():
        raise ValueError(f"quality must be a finite number ≥ 0 for each of {len(x)} images, got {tuple(weight.shape)}")
    if (x.new_zeros(templates).index_add_(0, owner, weight) == 0).any():
        raise ValueError("quality must not be zero for all images of a template")
    return weight
