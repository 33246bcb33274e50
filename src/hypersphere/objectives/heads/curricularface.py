"""CurricularFace: hard classes get more weight as training proceeds."""

from typing_extensions import Unpack

from ...angular import Angular
from ..engine import Scale
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import AdditiveAngle, Curricular, Strength


class CurricularFace(MarginSoftmax):
    r"""Softmax that gives hard classes more weight as training proceeds (Huang et al., 2020).

    The target's logit is s·cos(θ_y + m). A class with cos θ_j > cos(θ_y + m) has the logit s·cos θ_j·(t + cos θ_j), where t
    is a running mean of cos θ_y that is saved in the state_dict.

    Args:
        m: Margin in radians; 0.5 is the authors' value.
        momentum: Share of the batch in the update of t; 0.01 is the authors' value.
        scale: s; 64 is the authors' value.

    >>> CurricularFace(8, 10).margin.t
    tensor(0.)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        m: float | Strength = 0.5,
        momentum: float = 0.01,
        scale: Scale = 64.0,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        margin = Curricular(AdditiveAngle(m), momentum)
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale=scale, bias=bias, **options)
