"""Statistics of a batch for margins that keep running ones: without the samples that are ignored."""

import torch
from jaxtyping import Float
from torch import Tensor

from .margin import Context


@torch.no_grad()
def compute_mean(values: Float[Tensor, "*n"], context: Context, otherwise: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Return the mean over the samples that are not ignored, or ``otherwise`` if there are none."""
    weights = _weights(values, context)
    count = weights.sum()
    mean = (values * weights).sum() / count.clamp_min(1)
    return torch.where(count > 0, mean.to(otherwise.dtype), otherwise)


@torch.no_grad()
def compute_deviation(values: Float[Tensor, "*n"], context: Context, otherwise: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Return the standard deviation (with n − 1) over the samples that are not ignored, or ``otherwise`` if there are fewer than two."""
    weights = _weights(values, context)
    count = weights.sum()
    mean = (values * weights).sum() / count.clamp_min(1)
    variance = ((values - mean).square() * weights).sum() / (count - 1).clamp_min(1)
    return torch.where(count > 1, variance.sqrt().to(otherwise.dtype), otherwise)


def _weights(values: Tensor, context: Context) -> Tensor:
    return torch.ones_like(values) if context.ignored is None else (~context.ignored).to(values.dtype)
