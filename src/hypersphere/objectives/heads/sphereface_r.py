"""SphereFace-R: the multiplicative margin in three versions, with a gradient that ignores the slope of the margin."""

from typing import ClassVar, Literal

from typing_extensions import Unpack

from ...angular import Angular
from ..engine import Scale
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import Clipped, Margin, Multiplicative, Shrunk, Strength

VERSIONS: dict[str, type[Multiplicative] | type[Clipped] | type[Shrunk]] = {
    "v0": Multiplicative,
    "v1": Clipped,
    "v2": Shrunk,
}


class SphereFaceR(MarginSoftmax):
    r"""SphereFace revived: the multiplicative margin in three versions (Liu et al., 2022).

    By default the gradient treats the effect of the margin as a constant: the logit is s·(cos θ + stop(ψ − cos θ)).

    Args:
        version: ``"v0"`` for ψ of eq. 2.6, ``"v1"`` for ψ = cos(min(mθ, π)), or ``"v2"``, which leaves the target alone
            and uses φ = cos(θ/m) for the other classes.
        m: Factor of the angle, at least 1; 1.5 is the paper's value, its code uses 1.7.
        scale: s; 30 is the paper's value.

    >>> SphereFaceR(8, 10, version="v1").margin
    Clipped(m=1.5)
    """

    option_defaults: ClassVar = {"gradient": "detached"}

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        version: Literal["v0", "v1", "v2"] = "v0",
        m: float | Strength = 1.5,
        scale: Scale = 30.0,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        if version not in VERSIONS:
            raise ValueError(f"version must be one of {', '.join(VERSIONS)}, got {version!r}")
        options.setdefault("gradient", "detached")
        margin: Margin = VERSIONS[version](m)
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale=scale, bias=bias, **options)
