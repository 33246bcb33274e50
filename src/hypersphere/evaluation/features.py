"""Features of mirrored images and of patch ensembles, and scores of pairs, with centering and PCA per fold."""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ..geometry import cosine, normalize


def append_mirrored(model: Callable[[Tensor], Tensor], images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d2"]:
    """Concatenate the features of each image and of its mirror image (Liu, 2020, 2.3).

    >>> append_mirrored(lambda images: images[:, 0, 0], torch.tensor([[[[1.0, 2.0, 3.0]]]]))
    tensor([[1., 2., 3., 3., 2., 1.]])
    """
    return torch.cat([model(images), model(images.flip(-1))], dim=1)


def ensemble(features: Sequence[Float[Tensor, "n _"]], *, normalized: bool = False) -> Float[Tensor, "n d"]:
    """Concatenate the features of several patches of the same images (A.8, three patches, no PCA).

    A patch with longer features has a higher weight. With ``normalized``, all patches have the same weight.

    Raises:
        ValueError: If there is no patch, or the numbers of images differ.

    >>> eyes, mouth = torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0]])
    >>> ensemble([eyes, mouth]), ensemble([eyes, mouth], normalized=True)
    (tensor([[3., 4., 2.]]), tensor([[0.6000, 0.8000, 1.0000]]))
    """
    if not features or len({len(f) for f in features}) > 1:
        raise ValueError(
            f"features must be of the same images, at least one patch, got {[tuple(f.shape) for f in features]}"
        )
    return torch.cat([normalize(f) if normalized else f for f in features], dim=1)


def pair_scores(
    features: Float[Tensor, "n d"], pairs: Shaped[Tensor, "..."], chunk: int = 65536
) -> Float[Tensor, "pairs"]:
    """Return cos θ of pairs ``(pairs, 2)`` of row indices of ``features``, computed for ``chunk`` pairs at a time.

    >>> pair_scores(torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]), torch.tensor([[0, 1], [0, 2]]))
    tensor([0., 1.])
    """
    left, right = _check_pairs(features, pairs)
    unit = normalize(features.to(torch.promote_types(features.dtype, torch.float32)))
    scores = [(unit[left[rows]] * unit[right[rows]]).sum(1).clamp(-1, 1) for rows in _split_slices(len(left), chunk)]
    return torch.cat(scores).to(features.dtype)


def fold_scores(
    features: Float[Tensor, "n d"],
    pairs: Shaped[Tensor, "..."],
    fold: Shaped[Tensor, "..."],
    *,
    center: bool = True,
    components: int | None = None,
    chunk: int = 65536,
) -> Float[Tensor, "folds pairs"]:
    """Return cos θ of every pair for the transform of each fold: centering and projection onto principal components.

    Row k, in the order of the fold numbers, holds the scores of *all* pairs for the transform fitted without fold k. The
    threshold of fold k can thus be chosen on scores of the same transform (as in SphereFace's ``evaluation.m``). Pass the
    result to :func:`verification`. The transform of a fold is fitted on the features in pairs of other folds, each once,
    except features that also occur in pairs of this fold.

    Args:
        features: Features of all images ``(n, d)``.
        pairs: Row indices of ``features`` ``(pairs, 2)``.
        fold: Fold of each pair.
        center: Whether to subtract the mean.
        components: Number of principal components; None skips the projection.
        chunk: Number of pairs computed at a time; affects memory only.

    >>> features, pairs = torch.randn(12, 4), torch.arange(12).view(6, 2)
    >>> fold_scores(features, pairs, torch.arange(6) % 3, components=2).shape
    torch.Size([3, 6])
    """
    left, right = _check_pairs(features, pairs)
    if fold.shape != left.shape or fold.is_floating_point():
        raise ValueError(
            f"fold must hold an integer for each of the {len(left)} pairs, got {fold.dtype} {tuple(fold.shape)}"
        )
    if components is not None and not 1 <= components <= features.shape[1]:
        raise ValueError(f"components must be between 1 and the dimension {features.shape[1]}, got {components!r}")
    rows = []
    for i in fold.unique():
        held_out = fold == i
        in_fold = torch.zeros(len(features), dtype=torch.bool, device=features.device)
        in_fold[torch.cat([left[held_out], right[held_out]])] = True
        in_pairs = torch.zeros_like(in_fold)
        in_pairs[torch.cat([left, right])] = True
        mean, axes = _fit_transform(features[in_pairs & ~in_fold], center, components, int(i))
        mapped = (features.double() - mean) @ axes
        parts = [cosine(mapped[left[part]], mapped[right[part]]) for part in _split_slices(len(left), chunk)]
        rows.append(torch.cat(parts).to(features.dtype))
    return torch.stack(rows)


def _fit_transform(x: Tensor, center: bool, components: int | None, fold: int) -> tuple[Tensor, Tensor]:
    """Return the mean (or 0) and the principal axes (or the identity) of rows, in float64."""
    if not len(x) or (components is not None and len(x) <= components):
        raise ValueError(
            f"fold {fold} leaves {len(x)} features of other folds, too few to fit {components or 1} component(s)"
        )
    x = x.double()
    mean = x.mean(0)
    axes = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    if components is not None:
        axes = torch.linalg.svd(x - mean, full_matrices=False).Vh[:components].T
    return mean if center else torch.zeros_like(mean), axes


def _check_pairs(features: Tensor, pairs: Tensor) -> tuple[Int[Tensor, "pairs"], Int[Tensor, "pairs"]]:
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.is_floating_point() or pairs.dtype == torch.bool:
        raise ValueError(f"pairs must be integers of shape (pairs, 2), got {pairs.dtype} {tuple(pairs.shape)}")
    if pairs.numel() and not 0 <= int(pairs.min()) <= int(pairs.max()) < len(features):
        raise ValueError(
            f"pairs must index {len(features)} features, got indices {int(pairs.min())} to {int(pairs.max())}"
        )
    return pairs[:, 0].long(), pairs[:, 1].long()


def _split_slices(n: int, chunk: int) -> Iterator[slice]:
    if chunk < 1:
        raise ValueError(f"chunk must be an integer ≥ 1, got {chunk!r}")
    return (slice(start, start + chunk) for start in range(0, max(n, 1), chunk))
