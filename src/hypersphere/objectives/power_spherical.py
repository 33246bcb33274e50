"""The power spherical distribution: directions around a mean, with a density, samples and an entropy in closed form."""

import math
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Beta, Distribution, constraints

from ..geometry import normalize


class PowerSpherical(Distribution):
    r"""p(x) ∝ (1 + μ·x)^κ on the unit sphere of R^d (De Cao and Aziz, 2020, arXiv:2006.04437).

    Write t = μ·x. Its density is proportional to (1 + t)^κ·(1 − t²)^{(d−3)/2}, so (1 + t)/2 has the distribution
    Beta(a, b) with a = (d − 1)/2 + κ and b = (d − 1)/2. Hence, in closed form,

    .. math:: \log p(x) = κ \log(1 + μ·x) − \log Z, \quad \log Z = (a + b)\log 2 + b \log π + \log Γ(a) − \log Γ(a + b)

    and the entropy is log Z − κ(log 2 + ψ(a) − ψ(a + b)) with the digamma function ψ. A sample draws t, a uniform direction at a
    right angle to the first axis, and reflects the first axis onto μ: no rejection, and the gradient reaches μ and κ. It takes
    the place of the von Mises–Fisher distribution where samples are needed in many dimensions, as in a variational autoencoder.

    Args:
        loc: μ, (…, d) with d ≥ 2; lengths do not matter.
        concentration: κ ≥ 0, (…): 0 is the uniform distribution.

    Raises:
        ValueError: If d is below 2, or κ is negative or not finite.

    >>> q = PowerSpherical(torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([50.0]))
    >>> x = q.rsample()
    >>> x.shape, q.log_prob(x).shape, round(q.kl_to_uniform().item(), 4)
    (torch.Size([1, 3]), torch.Size([1]), 2.9514)
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real_vector,
        "concentration": constraints.nonnegative,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Float[Tensor, "*n d"], concentration: Float[Tensor, "*n"]):
        if loc.ndim < 1 or loc.shape[-1] < 2:
            raise ValueError(f"loc must be directions (…, d) with d ≥ 2, got shape {tuple(loc.shape)}")
        if not bool(((concentration >= 0) & concentration.isfinite()).all()):
            raise ValueError(f"concentration must be finite numbers ≥ 0, got {concentration!r}")
        shape = torch.broadcast_shapes(loc.shape[:-1], concentration.shape)
        self.loc = normalize(loc).expand(*shape, loc.shape[-1])
        self.concentration = concentration.expand(shape)
        self._b = (loc.shape[-1] - 1) / 2
        self._a = self.concentration + self._b
        super().__init__(shape, loc.shape[-1:], validate_args=False)

    @property
    def mean(self) -> Float[Tensor, "*n d"]:
        """The mean vector μ·(a − b)/(a + b), inside of the sphere."""
        return self.loc * ((self._a - self._b) / (self._a + self._b)).unsqueeze(-1)

    def rsample(self, sample_shape: torch.Size | tuple[int, ...] = ()) -> Float[Tensor, "*m d"]:
        """Draw unit vectors, differentiable by μ and κ.

        Args:
            sample_shape: How many, as in every torch distribution.
        """
        shape = self._extended_shape(torch.Size(sample_shape))
        t = 2 * Beta(self._a, torch.full_like(self._a, self._b)).rsample(torch.Size(sample_shape)) - 1
        side = normalize(torch.randn(*shape[:-1], shape[-1] - 1, dtype=self.loc.dtype, device=self.loc.device))
        t = t.unsqueeze(-1)
        y = torch.cat([t, (1 - t.square()).clamp_min(0).sqrt() * side], -1)
        # The Householder reflection that exchanges the first axis and μ.
        axis = torch.zeros_like(self.loc)
        axis[..., 0] = 1
        u = normalize(axis - self.loc, min_norm=torch.finfo(self.loc.dtype).eps)
        return y - 2 * (y * u).sum(-1, keepdim=True) * u

    def log_prob(self, value: Float[Tensor, "*m d"]) -> Float[Tensor, "*m"]:
        """Return the logarithm of the density by the area of the sphere.

        Args:
            value: Unit vectors.
        """
        cos = (value * self.loc).sum(-1)
        return self.concentration * torch.log1p(cos.clamp_min(-1 + torch.finfo(cos.dtype).eps)) - self._log_normalizer()

    def entropy(self) -> Float[Tensor, "*n"]:
        """Return −E log p(x)."""
        expected = math.log(2) + torch.digamma(self._a) - torch.digamma(self._a + self._b)
        return self._log_normalizer() - self.concentration * expected

    def kl_to_uniform(self) -> Float[Tensor, "*n"]:
        """Return the Kullback–Leibler divergence from the uniform distribution: the logarithm of the area, less the entropy."""
        dim = self.loc.shape[-1]
        return math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2) - self.entropy()

    def expand(self, batch_shape: torch.Size, _instance: object = None) -> "PowerSpherical":
        """Return the distribution for more samples."""
        return PowerSpherical(self.loc.expand(*batch_shape, self.loc.shape[-1]), self.concentration.expand(batch_shape))

    def _log_normalizer(self) -> Tensor:
        a, b = self._a, self._b
        return (a + b) * math.log(2) + b * math.log(math.pi) + torch.lgamma(a) - torch.lgamma(a + b)
