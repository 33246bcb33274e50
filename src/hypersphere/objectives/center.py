"""Center loss, the Euclidean baseline of Liu (2020)."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .engine.problem import clean_labels


class CenterLoss(nn.Module):
    r"""½ ‖x − c_y‖², mean or sum over the samples, with learned class centers c (2.1; tables 2.9, 5.10).

    Add it to a softmax loss with a small weight. The centers are parameters that start at 0 and are trained by gradient descent.
    With ``reduction="sum"`` and the learning rate α, one step moves a center by α·Σ(x − c). This is the original update rule
    without its denominator 1 + n.

    >>> loss = CenterLoss(2, num_classes=3)
    >>> loss(torch.tensor([[3.0, 4.0]]), torch.tensor([1]))
    tensor(12.5000, grad_fn=<DivBackward0>)
    """

    def __init__(
        self, in_features: int, num_classes: int, reduction: Literal["mean", "sum"] = "mean", ignore_index: int = -100
    ):
        super().__init__()
        if reduction not in ("mean", "sum"):
            raise ValueError(f'reduction must be "mean" or "sum", got {reduction!r}')
        if in_features < 1 or num_classes < 1:
            raise ValueError(f"in_features and num_classes must be ≥ 1, got {in_features} and {num_classes}")
        self.reduction, self.ignore_index = reduction, ignore_index
        self.centers = nn.Parameter(torch.zeros(num_classes, in_features))

    def forward(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> Float[Tensor, ""]:
        """Compute the loss of a batch in float32 or better."""
        num_classes, dim = self.centers.shape
        if features.ndim != 2 or features.shape[1] != dim:
            raise ValueError(f"features must be (n, {dim}), got {tuple(features.shape)}")
        labels, ignored = clean_labels(labels, len(features), num_classes, self.ignore_index)
        dtype = torch.promote_types(torch.promote_types(features.dtype, self.centers.dtype), torch.float32)
        squares = (features.to(dtype) - self.centers[labels].to(dtype)).square().sum(-1).masked_fill(ignored, 0)
        total = squares.sum() / 2
        return total if self.reduction == "sum" else total / (~ignored).sum().clamp_min(1)

    def extra_repr(self) -> str:
        """Return sizes and reduction."""
        num_classes, dim = self.centers.shape
        return f"in_features={dim}, num_classes={num_classes}, reduction={self.reduction!r}"
