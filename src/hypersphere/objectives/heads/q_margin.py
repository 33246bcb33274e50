"""Q-Margin: a margin in the reference measure of an α-divergence."""

import math

from typing_extensions import Unpack

from ...angular import Angular
from ..comparisons.alpha_divergence import AlphaDivergence, margin_to_prior
from ..head import MarginSoftmax
from ..head_options import HeadOptions


class QMargin(MarginSoftmax):
    r"""Softmax of an α-divergence with the margin in the prior of the target class (Koutsianos et al., 2026, arXiv:2606.31664).

    The loss is :class:`~hypersphere.objectives.comparisons.AlphaDivergence` on logits s·g(θ) with the reference measure
    q_y = (1 + (α − 1)·s·m)^{−1/(α−1)} on the target and 1 on all others. For α → 1 that is e^{−sm}, and the loss is CosFace with
    the margin m. For α > 1 classes whose logit is more than 1/(α − 1) below the largest have probability and gradient 0, so each
    sample learns from its hardest classes only. Only the abstract of the paper was available: the margin in the prior is
    theirs, and how m determines q_y is derived here. Use it if few confusable classes matter, as at very low false accept rates.

    Args:
        m: Margin in units of the cosine; 0.35 as in CosFace.
        scale: s, a number; 30 as in CosFace.
        alpha: α in (1, 2]; 1.5 as in Roulet et al. (2025).

    >>> head = QMargin(8, 10)
    >>> head(torch.randn(4, 8), torch.tensor([1, 0, 9, 9])).shape, head.comparison
    (torch.Size([]), AlphaDivergence(alpha=1.5, prior=0.0256))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        m: float = 0.35,
        scale: float = 30.0,
        alpha: float = 1.5,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be a positive number, got {scale!r}")
        if not 0 <= m < math.inf:
            raise ValueError(f"m must be a number ≥ 0, got {m!r}")
        AlphaDivergence(alpha)  # raises an error for an invalid alpha, before margin_to_prior uses it
        comparison = AlphaDivergence(alpha, margin_to_prior(scale * m, alpha))
        super().__init__(
            in_features, num_classes, scale=scale, angular=angular, bias=bias, comparison=comparison, **options
        )
