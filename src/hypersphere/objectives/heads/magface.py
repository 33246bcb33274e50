"""MagFace: the length of a feature becomes its quality."""

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
    r"""s·cos(θ + m(‖x‖)) and λ_g·(‖x‖/u_a² + 1/‖x‖), m linear from 0.45 to 0.8 for ‖x‖ from 10 to 110 (Meng et al., 2021).

    s = 64 and λ_g = 35 are the authors' (20 in some runs). :meth:`quality` is ‖x‖, which a trained network makes large
    for clear samples.

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
        """‖x‖ of each feature: the larger, the clearer the sample."""
        return norm(features)
