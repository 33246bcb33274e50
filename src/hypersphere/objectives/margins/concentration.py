"""The score of a feature whose direction is uncertain: an average over a von Mises–Fisher distribution."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...geometry import log_mean_exponential, mean_length
from .margin import EMPTY_CONTEXT, Context, Margin

MAX_CONCENTRATION = 1e6
"""κ is limited to this number, at which a direction is known to 0.1 %; beyond it differences of logarithms lose their digits."""


class Concentration(Margin):
    r"""ψ(θ) = φ(θ) = (log M_d(‖κμ + βw‖) − log M_d(κ))/β: the expectation of e^{β·w·z} over uncertain directions z.

    A feature x stands for the von Mises–Fisher distribution with mean direction μ = x/‖x‖ and concentration κ = γ‖x‖. With the
    moment generating function M_d of :func:`hypersphere.geometry.log_mean_exponential`, log E e^{β·w·z} is the difference
    above, because the density is e^{κ·μ·z}/M_d(κ) and κμ + βw has the length ρ with
    ρ² = κ² + β² + 2κβ cos θ. For κ → ∞ it is β cos θ. For κ = 0 it does not depend on θ: such a feature carries no information.

    By Jensen's inequality the expected loss E[log Σ_j e^{β·w_j·z} − β·w_y·z] is at most log Σ_j E e^{β·w_j·z} − β·A_d(κ) cos θ_y. The
    softmax of the scores gives the first term less the target's score, and :meth:`penalty` adds the rest, so a head with this
    margin minimizes that bound.

    Args:
        scale: β, the same number as the head's.
        dim: Dimension d of the features.
        gain: γ at the start; it is learned. None is √d: features with coordinates of variance 1 then have κ ≈ d, at which
            the mean of z has a length of 0.6 in any dimension.

    >>> margin = Concentration(scale=10.0, dim=64)
    >>> sure, unsure = (margin.target(torch.tensor([1.0]), Context(norms=torch.tensor([n]))) for n in (100.0, 1.0))
    >>> bool(sure > 0.9), bool(unsure < 0.3)
    (True, True)
    """

    def __init__(self, scale: float, dim: int, gain: float | None = None):
        super().__init__()
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be a positive number, got {scale!r}")
        if dim < 2:
            raise ValueError(f"dim must be an integer ≥ 2, got {dim!r}")
        gain = math.sqrt(dim) if gain is None else gain
        if not 0 < gain < math.inf:
            raise ValueError(f"gain must be a positive number, got {gain!r}")
        self.scale, self.dim = float(scale), dim
        self.log_gain = nn.Parameter(torch.tensor(math.log(gain)))

    def concentration(self, norms: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Return κ = γ‖x‖ in float64, at most 10⁶.

        Args:
            norms: ‖x‖.
        """
        return (self.log_gain.double().exp() * norms.double()).clamp_max(MAX_CONCENTRATION)

    def target(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "*n"]:
        """Return log E e^{β·w·z}/β of each sample's own class."""
        return self._score(cos, context)

    def others(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "n c"]:
        """Return the same for the other classes."""
        return self._score(cos, context)

    def penalty(self, context: Context) -> Float[Tensor, "*n"] | None:
        """Return log E e^{β·w_y·z} − E β·w_y·z ≥ 0, the gap between the softmax of the scores and the bound."""
        if context.norms is None:
            raise ValueError("Concentration needs the norms of the features, which its context lacks: use it in a head")
        if context.target is None:  # a head checks whether there is a penalty before it computes the angles
            return torch.zeros_like(context.norms)
        mean = mean_length(self.concentration(context.norms), self.dim) * context.target
        return self.scale * (self._score(context.target, context) - mean.to(context.target.dtype))

    def _score(self, cos: Tensor, context: Context) -> Tensor:
        if context.norms is None:
            raise ValueError("Concentration needs the norms of the features, which its context lacks: use it in a head")
        kappa, beta = self.concentration(context.norms), self.scale
        # ρ² as a sum of two positive terms; its root has no derivative at 0, where κ = β and the directions are opposite.
        square = (kappa - beta).square() + 2 * beta * kappa * (1 + cos.double())
        value = log_mean_exponential(square.clamp_min(1e-12).sqrt(), self.dim) - log_mean_exponential(kappa, self.dim)
        return (value / beta).to(cos.dtype)

    def extra_repr(self) -> str:
        """Return β, d and the learned γ."""
        return f"scale={self.scale:g}, dim={self.dim}, gain={self.log_gain.exp().item():.4g}"
