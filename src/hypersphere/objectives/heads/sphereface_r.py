"""SphereFace-R: the multiplicative margin in three versions, with a gradient that ignores its slope."""

from typing import Literal

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
    r"""SphereFace revived (Liu et al., 2022): s·ψ(θ_y) against s·φ(θ_j), with the margin's effect held constant.

    ``version`` "v0" is ψ of eq. 2.6, "v1" is ψ = cos(min(mθ, π)), "v2" leaves the target and gives the others
    φ = cos(θ/m). s = 30 and m = 1.5 are the paper's (its code uses 1.7). ``gradient`` is ``"detached"`` unless given:
    the logits are s·(cos θ + stop(ψ − cos θ)).

    >>> SphereFaceR(8, 10, version="v1").margin
    Clipped(m=1.5)
    """

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
