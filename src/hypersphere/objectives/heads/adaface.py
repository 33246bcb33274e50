"""AdaFace: a margin by the quality of the image."""

from jaxtyping import Float
from torch import Tensor
from typing_extensions import Unpack

from ...angular import Angular
from ...geometry import norm
from ..engine import Scale
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import QualityAdaptive


class AdaFace(MarginSoftmax):
    r"""s·(cos(θ − m·z) − (m + m·z)), z = clip(h(‖x‖ − μ)/σ, ±1), μ and σ running (Kim et al., 2022).

    s = 64, m = 0.4, h = 0.333 and a momentum of 0.01 are the authors'. The statistics move in training only and are
    saved in the state_dict. :meth:`quality` is ‖x‖.

    >>> AdaFace(8, 10).quality(torch.tensor([[3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]))
    tensor([5.])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        m: float = 0.4,
        h: float = 0.333,
        momentum: float = 0.01,
        scale: Scale = 64.0,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        margin = QualityAdaptive(m, h, momentum)
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale=scale, bias=bias, **options)

    def quality(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
        """‖x‖ of each feature: the larger, the clearer the sample."""
        return norm(features)
