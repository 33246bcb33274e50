"""AdaCos: a softmax whose scale adapts during training."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import Unpack

from ...angular import Angular
from ..comparisons import CrossEntropy
from ..comparisons.comparison_loss import Summary
from ..engine import Targets
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import NoMargin
from ..margins.margin import EMPTY_CONTEXT, Context


class AdaCos(MarginSoftmax):
    r"""Softmax of s·cos θ whose scale s adapts during training (Zhang et al., 2019).

    Before each training step, s ← ln B_avg / cos(min(π/4, θ_med)), where B_avg is the mean over the batch of
    Σ_{j≠y} exp(s·cos θ_j) at the current scale, and θ_med is the median angle between samples and their own classes.
    The scale starts at √2·ln(C − 1) and never falls below 1. It is a buffer, so the state_dict contains it.

    Args:
        num_classes: Number of classes C, at least 3.
        dynamic: Whether to adapt the scale. With False it keeps its initial value.

    >>> round(AdaCos(8, 100).scale.item(), 3)
    6.498
    """

    scale: Tensor

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        dynamic: bool = True,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        if num_classes < 3:
            raise ValueError(f"AdaCos needs num_classes ≥ 3, as its scale starts at √2·ln(C − 1), got {num_classes}")
        start = torch.tensor(math.sqrt(2) * math.log(num_classes - 1), device=options.get("device"))
        super().__init__(in_features, num_classes, angular=angular, scale=start, bias=bias, **options)
        self.dynamic = dynamic

    def forward(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"] | Targets) -> Float[Tensor, "..."]:
        """Compute the loss of a batch. In training mode, adapt the scale first."""
        if self.training and self.dynamic:
            self.adapt(features, labels)
        return super().forward(features, labels)

    @torch.no_grad()
    def adapt(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"] | Targets) -> None:
        """Set the scale from this batch. A batch in which all samples are ignored does not change it.

        Args:
            features: The features of the batch.
            labels: The class of each sample, or ``ignore_index``.

        Raises:
            ValueError: If ``labels`` has soft targets.
        """
        if isinstance(labels, Targets) and labels.soft is not None:
            raise ValueError("AdaCos sets its scale from labels and takes no soft targets; use dynamic=False or labels")
        targets, sums = _TargetRecorder(), _SumRecorder()
        options = {"margin": targets, "comparison": sums, "bias": None, "annealing": 0.0, "reduction": "none"}
        self.compute_loss(features, labels, **options)
        count = (~targets.ignored).sum()
        log_b = sums.values.masked_fill(targets.ignored, -torch.inf).logsumexp(0) - count.clamp_min(1).log()
        # cos(min(π/4, θ)) = max(cos π/4, cos θ). For an even number of samples, the median is the smaller of the two middle
        # angles, with the larger cosine. But nanmedian returns the smaller of two middle values, hence the minus signs.
        median = -(-targets.cos).masked_fill(targets.ignored, torch.nan).nanmedian()
        new = (log_b / median.clamp_min(math.cos(math.pi / 4))).clamp_min(1)
        usable = (count > 0) & new.isfinite()  # a batch with NaN must not make the scale NaN
        self.scale.copy_(torch.where(usable, new.to(self.scale.dtype), self.scale))


class _TargetRecorder(NoMargin):
    """No margin. Stores the cosine of each sample with its own class."""

    cos: Tensor
    ignored: Tensor

    def target(self, cos: Float[Tensor, "n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "n"]:
        self.cos = cos
        self.ignored = torch.zeros_like(cos, dtype=torch.bool) if context.ignored is None else context.ignored
        return super().target(cos, context)


class _SumRecorder(CrossEntropy):
    """Stores log Σ_{j≠y} exp z_j of each sample and returns it instead of a loss."""

    values: Tensor

    def loss(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> Float[Tensor, "n"]:
        self.values = summary[0]
        return self.values
