"""ElasticFace: a random margin for every sample."""

from typing import Literal

from typing_extensions import Unpack

from ...angular import Angular
from ..engine import Scale
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import AdditiveAngle, AdditiveCosine, Margin
from ..strengths import Drawn


class ElasticFace(MarginSoftmax):
    r"""Softmax with a margin m ~ N(mean, std²) that is drawn for every sample (Boutros et al., 2022).

    In evaluation mode the mean is used.

    Args:
        kind: ``"angle"`` for s·cos(θ + m), which is ElasticFace-Arc, or ``"cosine"`` for s·(cos θ − m), which is
            ElasticFace-Cos.
        m: Mean of the margin. The default is 0.5 for ``"angle"`` and 0.35 for ``"cosine"``.
        std: Standard deviation of the margin; 0.05 is the authors' value.
        scale: s; 64 is the authors' value.

    >>> ElasticFace(8, 10, kind="cosine").margin.m
    Drawn(mean=0.35, std=0.05)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        kind: Literal["angle", "cosine"] = "angle",
        m: float | None = None,
        std: float = 0.05,
        scale: Scale = 64.0,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        if kind not in ("angle", "cosine"):
            raise ValueError(f'kind must be "angle" or "cosine", got {kind!r}')
        usual = 0.5 if kind == "angle" else 0.35
        drawn = Drawn(usual if m is None else m, std)
        margin: Margin = AdditiveAngle(drawn) if kind == "angle" else AdditiveCosine(drawn)
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale=scale, bias=bias, **options)
