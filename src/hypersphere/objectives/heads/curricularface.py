"""CurricularFace: hard classes weigh more as training goes on."""

from typing_extensions import Unpack

from ...angular import Angular
from ..engine import Scale
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import AdditiveAngle, Curricular, Strength


class CurricularFace(MarginSoftmax):
    r"""s·cos(θ_y + m) against s·cos θ_j·(t + cos θ_j) for classes with cos θ_j > cos(θ_y + m) (Huang et al., 2020).

    t is a running mean of cos θ_y and is saved in the state_dict. m = 0.5 rad, s = 64 and a momentum of 0.01 are the
    authors'.

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
