"""MV-Softmax: more weight on classes that score higher than the target."""

from typing import Literal

from typing_extensions import Unpack

from ...angular import Angular
from ..engine import Scale
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import AdditiveAngle, AdditiveCosine, Margin, Misclassified, Strength


class MVSoftmax(MarginSoftmax):
    r"""Softmax with more weight on classes that score higher than the target (Wang et al., 2020).

    A class with cos θ_j > ψ(θ_y) has the logit s·(t·cos θ_j + t − 1).

    Args:
        kind: ``"cosine"`` for ψ = cos θ − m, or ``"angle"`` for ψ = cos(θ + m).
        m: Margin; 0.35 is usual for ``"cosine"`` and 0.5 for ``"angle"``.
        t: Weight of the hard classes, at least 1; 1.12 is the authors' value.
        scale: s; 32 is the authors' value.

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
