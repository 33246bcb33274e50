"""What a head accepts."""

import math

import torch
from torch import Tensor

from .head_options import Scale
from .part import Portion


def checked_labels(labels: Tensor, n: int, num_classes: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """The labels with 0 in place of ``ignore_index``, and where it was; anything else out of range is refused."""
    labels, ignored = counted_labels(labels, n, num_classes, ignore_index)
    return labels, torch.zeros_like(labels, dtype=torch.bool) if ignored is None else ignored


def counted_labels(labels: Tensor, n: int, num_classes: int, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """:func:`checked_labels` with None where a look at the least and the largest label shows that all of them count."""
    require_tensor("labels", labels, "integers, one per feature")
    if labels.shape != (n,) or labels.is_floating_point():
        raise ValueError(
            f"labels must be {n} integers, one per feature, got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    labels = labels.long()
    # Under torch.compile the values are unknown, and the indexing itself refuses what is out of range.
    known = not torch.compiler.is_compiling() and n > 0
    if known and not 0 <= ignore_index < num_classes and _out_of_range(labels, num_classes) is None:
        return labels, None
    ignored = labels == ignore_index
    labels = labels.masked_fill(ignored, 0)
    bad = _out_of_range(labels, num_classes) if known else None
    if bad is not None:
        raise ValueError(f"labels must be in [0, {num_classes - 1}] or ignore_index={ignore_index}, got {bad}")
    return labels, ignored


def _out_of_range(labels: Tensor, num_classes: int) -> int | None:
    """A label below 0 or beyond the last class, if there is one."""
    least, most = (int(end) for end in torch.aminmax(labels))
    return least if least < 0 else most if most >= num_classes else None


def check(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: Scale,
    sub_centers: int,
    gradient: str = "exact",
    reduction: str = "mean",
    part: Portion | None = None,
) -> None:
    """Refuse what has no meaning, in words that name the argument."""
    require_tensor("features", features, "(n, d) of a floating-point dtype")
    require_tensor("weight", weight, "(classes, d) of a floating-point dtype")
    if features.ndim != 2 or weight.ndim != 2 or features.shape[1] != weight.shape[1]:
        raise ValueError(
            f"features (n, d) and weight (classes, d) must agree in d, "
            f"got {tuple(features.shape)} and {tuple(weight.shape)}"
        )
    least = 2 * sub_centers if part is None or part.is_whole else 0
    if sub_centers < 1 or len(weight) % sub_centers or len(weight) < least:
        raise ValueError(
            f"weight must have sub_centers rows for each of two or more classes, got {len(weight)} rows, {sub_centers=}"
        )
    if bias is not None and bias.shape not in ((len(weight) // sub_centers,), (1,), ()):
        raise ValueError(
            f"bias must have one entry per class, {len(weight) // sub_centers}, or one for all, "
            f"got shape {tuple(bias.shape)}"
        )
    _check_scale(scale, sub_centers)
    if gradient not in ("exact", "detached"):
        raise ValueError(f'gradient must be "exact" or "detached", got {gradient!r}')
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'reduction must be "mean", "sum" or "none", got {reduction!r}')


def require_tensor(name: str, given: object, what: str) -> None:
    """Refuse, with a TypeError, anything but a torch tensor, and say how to make one."""
    if not isinstance(given, Tensor):
        raise TypeError(
            f"{name} must be a torch tensor, {what}, got {type(given).__name__}; torch.as_tensor({name}) makes one"
        )


def scale_warning(scale: Scale) -> str | None:
    """What is unusual about a constant scale, in words, or None."""
    if isinstance(scale, (str, Tensor)) or 1 <= scale <= 1000:
        return None
    return f"scale={scale!r} is unusual; Liu (2020) recommends 10 to 70 (B.3). Are m and scale in each other's place?"


def _check_scale(scale: Scale, sub_centers: int) -> None:
    if isinstance(scale, str) and scale not in ("feature_norm", "norms"):
        raise ValueError(f'scale must be a number, a scalar tensor, "feature_norm" or "norms", got {scale!r}')
    if not isinstance(scale, (str, Tensor)) and not 0 < scale < math.inf:
        raise ValueError(f"scale must be a positive number, got {scale!r}")
    if isinstance(scale, str) and scale == "norms" and sub_centers > 1:
        raise ValueError(
            'scale="norms" has no meaning for several centres of different length; use a number or "feature_norm"'
        )
