"""UniFace: one learned threshold that separates all positive from all negative pairs of samples and classes."""

import math

from torch import nn
from typing_extensions import Unpack

from ...angular import Angular
from ..comparisons import Binary
from ..engine import Scale
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import AdditiveCosine, Strength


class UniFace(MarginSoftmax):
    r"""Unified cross-entropy: one threshold for all pairs of samples and classes (Zhou et al., 2023).

    .. math:: \operatorname{softplus}(b − s(\cos θ_y − m)) + Σ_{j≠y} \operatorname{softplus}(s·\cos θ_j − b)

    The learned threshold b is the negative of the head's ``bias``. For C classes it starts at ln(10·C·rate).

    Args:
        m: Margin; 0.4 is the paper's value.
        scale: s; 64 is the paper's value.
        rate: Fraction of the negative classes that each step compares; it only sets the initial threshold.

    >>> round(-UniFace(8, 10).bias.item(), 4)
    4.6052
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        m: float | Strength = 0.4,
        scale: Scale = 64.0,
        rate: float = 1.0,
        angular: Angular | None = None,
        **options: Unpack[HeadOptions],
    ):
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be a number in (0, 1], got {rate!r}")
        self.rate = float(rate)
        super().__init__(
            in_features,
            num_classes,
            margin=AdditiveCosine(m),
            angular=angular,
            scale=scale,
            bias="shared",
            comparison=Binary(),
            **options,
        )

    def reset_parameters(self) -> None:
        """Draw the weights again and reset the threshold to ln(10·C·rate)."""
        super().reset_parameters()
        assert self.bias is not None
        nn.init.constant_(self.bias, -math.log(10 * self.num_classes * self.rate))
