"""Statistics of a batch for margins with running statistics; ignored samples and non-finite values do not count."""

import torch
from jaxtyping import Float
from torch import Tensor

from .margin import Context


@torch.no_grad()
def compute_mean(values: Float[Tensor, "*n"], context: Context, otherwise: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Return the mean over the samples that are not ignored, or ``otherwise`` if there are none."""
    values, weights = _weigh(values, context)
    count = weights.sum()
    mean = (values * weights).sum() / count.clamp_min(1)
    return torch.where(count > 0, mean.to(otherwise.dtype), otherwise)


@torch.no_grad()
def compute_deviation(values: Float[Tensor, "*n"], context: Context, otherwise: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Return the standard deviation (with n − 1) over the samples that are not ignored, or ``otherwise`` if there are fewer than two."""
    values, weights = _weigh(values, context)
    count = weights.sum()
    mean = (values * weights).sum() / count.clamp_min(1)
    variance = ((values - mean).square() * weights).sum() / (count - 1).clamp_min(1)
    return torch.where(count > 1, variance.sqrt().to(otherwise.dtype), otherwise)


def _weigh(values: Tensor, context: Context) -> tuple[Tensor, Tensor]:
    """Return finite values and their weights, 0 or 1. One batch with NaN must not change running statistics for good."""
    counts = values.isfinite() if context.ignored is None else values.isfinite() & ~context.ignored
    return torch.where(counts, values, 0.0), counts.to(values.dtype)
