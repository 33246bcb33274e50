"""UniFace: one threshold between all positive and all negative pairs."""

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
    r"""softplus(b − s(cos θ_y − m)) + Σ_j softplus(s·cos θ_j − b): unified cross-entropy (Zhou et al., 2023).

    The learned b is one threshold for all classes; here it is minus the head's ``bias``, and starts at ln(10·C·r),
    where r = ``rate`` is the part of the negative classes that is looked at. m = 0.4 and s = 64 are the paper's.

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
        """Draw the weights anew; the threshold becomes ln(10·C·r)."""
        super().reset_parameters()
        assert self.bias is not None
        nn.init.constant_(self.bias, -math.log(10 * self.num_classes * self.rate))
