"""AdaCos: a softmax on the sphere whose scale follows the training."""

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
from ..margins.margin import ALONE, Context


class AdaCos(MarginSoftmax):
    r"""s·cos θ with s ← ln B_avg / cos(min(π/4, θ_med)) before each training step (Zhang et al., 2019).

    B_avg is the batch's mean of Σ_{j≠y} exp(s·cos θ_j) at the scale so far, θ_med the median angle of the samples to
    their own classes. It starts at √2·ln(C − 1), and stays there with ``dynamic=False``. The scale is a buffer, saved in
    the state_dict, moves in training only and is never below 1. At least three classes are needed.

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
        """Compute the loss of a batch; in training the scale is set first."""
        if self.training and self.dynamic:
            self.adapt(features, labels)
        return super().forward(features, labels)

    @torch.no_grad()
    def adapt(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"] | Targets) -> None:
        """Set the scale from this batch; a batch in which every sample is ignored leaves it as it is."""
        if isinstance(labels, Targets) and labels.soft is not None:
            raise ValueError("AdaCos sets its scale from labels and takes no soft targets; use dynamic=False or labels")
        seen, others = _Seen(), _Others()
        options = {"margin": seen, "comparison": others, "bias": None, "annealing": 0.0, "reduction": "none"}
        self.compute_loss(features, labels, **options)
        counts = ~seen.ignored
        count = counts.sum()
        log_b = others.seen.masked_fill(~counts, -torch.inf).logsumexp(0) - count.clamp_min(1).log()
        # cos(min(π/4, θ)) is max(cos π/4, cos θ); the median of angles is the lower of two, that of cosines the upper.
        median = -(-seen.cos).masked_fill(~counts, torch.nan).nanmedian()
        new = (log_b / median.clamp_min(math.cos(math.pi / 4))).clamp_min(1)
        self.scale.copy_(torch.where(count > 0, new.to(self.scale.dtype), self.scale))


class _Seen(NoMargin):
    """No margin, and a look at the cosines of all samples to their own classes."""

    cos: Tensor
    ignored: Tensor

    def target(self, cos: Float[Tensor, "n"], context: Context = ALONE) -> Float[Tensor, "n"]:
        self.cos = cos
        self.ignored = torch.zeros_like(cos, dtype=torch.bool) if context.ignored is None else context.ignored
        return super().target(cos, context)


class _Others(CrossEntropy):
    """A look at log Σ_{j≠y} exp z_j of all samples, in place of a loss."""

    seen: Tensor

    def loss(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> Float[Tensor, "n"]:
        self.seen = summary[0]
        return self.seen
