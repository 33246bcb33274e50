"""Margins that depend on the quality of a sample, measured by the norm of its feature."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ...angular import Cosine
from .extension import continue_past_pi, continue_past_pi_with_slope
from .margin import EMPTY_CONTEXT, Context, Margin, Sloped
from .statistics import compute_deviation, compute_mean


class QualityAdaptive(Margin):
    r"""ψ(θ) = cos(θ − m·z) − (m + m·z), z = clip(h·(‖x‖ − μ)/σ, −1, 1): AdaFace (Kim et al., 2022).

    For a short feature, z = −1, the margin is an additive angle m, which has a small gradient for the hardest samples. For
    a long one, z = 1, it is an additive cosine 2m and an angle −m. μ and σ are running statistics of ‖x‖, updated in training mode
    with ``momentum``. ‖x‖ is limited to [0.001, 100] and has no gradient. Beyond π the cosine is continued as in eq. 2.6, and
    angles below 0 are 0.

    >>> margin = QualityAdaptive().eval()
    >>> context = hs.objectives.margins.Context(norms=torch.tensor([20.0]))
    >>> margin.target(torch.tensor([0.5]), context)
    tensor([0.1000])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, m: float = 0.4, h: float = 0.333, momentum: float = 0.01):
        super().__init__()
        if not 0 <= m < math.pi / 2:
            raise ValueError(f"margin m must be a number ≥ 0 and below 1.5708, got {m!r}")
        if not (0 < h < math.inf and 0 < momentum <= 1):
            raise ValueError(f"h must be positive and momentum in (0, 1], got h={h!r}, momentum={momentum!r}")
        self.m, self.h, self.momentum = float(m), float(h), float(momentum)
        self.register_buffer("mean", torch.tensor(20.0))  # where AdaFace's own code starts
        self.register_buffer("deviation", torch.tensor(100.0))

    def target(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "*n"]:
        """Return ψ(θ) for the quality of each sample, with z = 0 if the context has no norms."""
        if context.norms is None:
            return context.g(cos) - self.m
        z = self._quality(context.norms, context)
        return continue_past_pi(cos, 1.0, -self.m * z, context.g) - (self.m + self.m * z)

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return the score and, with g = cos, its slope sin(θ − m·z)/sin θ."""
        if not isinstance(context.g, Cosine):
            return None
        if context.norms is None:
            return cos - self.m, torch.ones_like(cos)
        z = self._quality(context.norms, context)
        score = continue_past_pi_with_slope(cos, 1.0, -self.m * z, context.g)
        return None if score is None else (score[0] - (self.m + self.m * z), score[1])

    def _quality(self, norms: Tensor, context: Context) -> Tensor:
        """Return z of each sample. In training mode, update the statistics first."""
        norms = norms.detach().clamp(1e-3, 100)
        if self.training:
            self.mean.lerp_(compute_mean(norms, context, self.mean), self.momentum)
            self.deviation.lerp_(compute_deviation(norms, context, self.deviation), self.momentum)
        mean, deviation = self.mean.to(norms.dtype), self.deviation.to(norms.dtype)
        return (self.h * (norms - mean) / (deviation + 1e-3)).clamp(-1, 1)

    def extra_repr(self) -> str:
        """Return the three numbers."""
        return f"m={self.m:g}, h={self.h:g}, momentum={self.momentum:g}"


class MagnitudeAware(Margin):
    r"""ψ(θ) = cos(θ + m(a)) with m(a) linear in a = ‖x‖, and λ_g·(a/u_a² + 1/a) per sample: MagFace (Meng et al., 2021).

    a is limited to [l_a, u_a], and m increases from l_m to u_m. Long features must be nearer to their class, and the
    penalty rewards long features, so ‖x‖ becomes a measure of quality.

    >>> context = hs.objectives.margins.Context(norms=torch.tensor([10.0, 60.0, 110.0]))
    >>> MagnitudeAware().strength(context.norms)
    tensor([0.4500, 0.6250, 0.8000])
    """

    def __init__(
        self,
        lower_margin: float = 0.45,
        upper_margin: float = 0.8,
        lower_norm: float = 10.0,
        upper_norm: float = 110.0,
        penalty_weight: float = 35.0,  # 20 in some of the authors' runs
    ):
        super().__init__()
        if not 0 <= lower_margin <= upper_margin < math.pi:
            raise ValueError(
                f"margins must satisfy 0 ≤ lower_margin ≤ upper_margin < π, got {lower_margin!r} and {upper_margin!r}"
            )
        if not 0 < lower_norm < upper_norm < math.inf:
            raise ValueError(f"norms must satisfy 0 < lower_norm < upper_norm, got {lower_norm!r} and {upper_norm!r}")
        if not 0 <= penalty_weight < math.inf:
            raise ValueError(f"penalty_weight must be a number ≥ 0, got {penalty_weight!r}")
        self.lower_margin, self.upper_margin = float(lower_margin), float(upper_margin)
        self.lower_norm, self.upper_norm = float(lower_norm), float(upper_norm)
        self.penalty_weight = float(penalty_weight)

    def strength(self, norms: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Return m(a) of each length, with its gradient."""
        a = norms.clamp(self.lower_norm, self.upper_norm)
        slope = (self.upper_margin - self.lower_margin) / (self.upper_norm - self.lower_norm)
        return self.lower_margin + slope * (a - self.lower_norm)

    def target(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "*n"]:
        """Return g(θ + m(a)), continued past π; without norms the smallest margin."""
        m = self.lower_margin if context.norms is None else self.strength(context.norms)
        return continue_past_pi(cos, 1.0, m, context.g)

    def penalty(self, context: Context) -> Float[Tensor, "*n"] | None:
        """Return λ_g·(a/u_a² + 1/a)."""
        if context.norms is None:
            return None
        a = context.norms.clamp(self.lower_norm, self.upper_norm)
        return self.penalty_weight * (a / self.upper_norm**2 + 1 / a)

    def extra_repr(self) -> str:
        """Return the ranges and the weight of the penalty."""
        return (
            f"margins=[{self.lower_margin:g}, {self.upper_margin:g}], norms=[{self.lower_norm:g}, "
            f"{self.upper_norm:g}], penalty_weight={self.penalty_weight:g}"
        )
