"""ElasticFace: a margin drawn for every sample."""

from typing import Literal

from typing_extensions import Unpack

from ...angular import Angular
from ..engine import Scale
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import AdditiveAngle, AdditiveCosine, Margin
from ..strengths import Drawn


class ElasticFace(MarginSoftmax):
    r"""s·cos(θ + m) or s·(cos θ − m) with m ~ N(mean, std²) drawn anew for each sample (Boutros et al., 2022).

    ``kind="angle"`` is ElasticFace-Arc with mean 0.5, ``kind="cosine"`` ElasticFace-Cos with mean 0.35, the defaults of
    ``m``; std = 0.05 and s = 64. In evaluation the mean is used.

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
