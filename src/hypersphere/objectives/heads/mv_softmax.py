"""MV-Softmax: more weight on the classes that a sample is mistaken for."""

from typing import Literal

from typing_extensions import Unpack

from ...angular import Angular
from ..engine import Scale
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import AdditiveAngle, AdditiveCosine, Margin, Misclassified, Strength


class MVSoftmax(MarginSoftmax):
    r"""s·ψ(θ_y) against s·(t·cos θ_j + t − 1) for classes with cos θ_j > ψ(θ_y) (Wang et al., 2020).

    ψ = cos θ − m for ``kind="cosine"`` (m = 0.35 is usual) and cos(θ + m) for ``kind="angle"`` (m = 0.5). t = 1.12 and
    s = 32 are the authors'.

    >>> MVSoftmax(8, 10).margin.t
    1.12
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        kind: Literal["cosine", "angle"] = "cosine",
        m: float | Strength = 0.35,
        t: float = 1.12,
        scale: Scale = 32.0,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        if kind not in ("cosine", "angle"):
            raise ValueError(f'kind must be "cosine" or "angle", got {kind!r}')
        inner: Margin = AdditiveCosine(m) if kind == "cosine" else AdditiveAngle(m)
        margin = Misclassified(inner, t)
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale=scale, bias=bias, **options)
