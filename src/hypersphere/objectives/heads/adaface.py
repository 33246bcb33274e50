"""AdaFace: a margin that adapts to the quality of the image."""

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
    r"""Softmax with a margin that adapts to the quality of each image (Kim et al., 2022).

    The target's logit is s·(cos(θ − m·z) − (m + m·z)) with z = clip(h·(‖x‖ − μ)/σ, −1, 1). μ and σ are running
    statistics of ‖x‖; they are updated in training mode only and saved in the state_dict.

    Args:
        m: Margin; 0.4 is the authors' value.
        h: Concentration of z; 0.333 is the authors' value.
        momentum: Share of the batch in the update of the running statistics.
        scale: s; 64 is the authors' value.

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
        """Return the norm ‖x‖ of each feature: larger means better quality."""
        return norm(features)
