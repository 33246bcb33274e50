"""MagFace: the norm of a feature measures its quality."""

from jaxtyping import Float
from torch import Tensor
from typing_extensions import Unpack

from ...angular import Angular
from ...geometry import norm
from ..engine import Scale
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import MagnitudeAware


class MagFace(MarginSoftmax):
    r"""Softmax that trains the norm of a feature to measure its quality (Meng et al., 2021).

    The target's logit is s·cos(θ + m(a)) with a = ‖x‖ limited to [l_a, u_a] and m linear in a. Each sample's loss
    includes λ_g·(a/u_a² + 1/a), which rewards long features.

    Args:
        lower_margin: m(l_a) in radians.
        upper_margin: m(u_a) in radians.
        lower_norm: l_a.
        upper_norm: u_a.
        penalty_weight: λ_g; the authors use 35, and 20 in some experiments.
        scale: s; 64 is the authors' value.

    >>> MagFace(8, 10).quality(torch.tensor([[3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]))
    tensor([5.])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        lower_margin: float = 0.45,
        upper_margin: float = 0.8,
        lower_norm: float = 10.0,
        upper_norm: float = 110.0,
        penalty_weight: float = 35.0,
        scale: Scale = 64.0,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        margin = MagnitudeAware(lower_margin, upper_margin, lower_norm, upper_norm, penalty_weight)
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale=scale, bias=bias, **options)

    def quality(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
        """Return the norm ‖x‖ of each feature: larger means better quality."""
        return norm(features)
