r"""Distributions of directions around a mean, power spherical and von Mises–Fisher, and their divergence from uniform.

Both densities depend on x through t = μ·x only, and grow with a concentration κ ≥ 0; κ = 0 is the uniform distribution:

.. math:: p(x) ∝ (1 + μ·x)^κ \quad \text{(power spherical)}, \qquad p(x) ∝ e^{κ·μ·x} \quad \text{(von Mises–Fisher)}.

The power spherical distribution (arXiv:2006.04437) has closed forms of all its functions, so it is cheaper to learn with. The
von Mises–Fisher distribution has the maximum entropy for a given mean. Its normalizer needs Bessel functions, and its samples are
drawn by rejection (arXiv:1804.00891). Samples of both are differentiable, those of the latter only once. Densities are with respect to
the surface area of the sphere.
"""

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .bessel import log_mean_exponential, mean_length
from .norms import normalize


def log_sphere_area(dim: int) -> float:
    r"""Return log(2·π^{d/2}/Γ(d/2)), the logarithm of the surface area of the unit sphere of R^d.

    >>> round(math.exp(log_sphere_area(3)) / math.pi, 6)
    4.0
    """
    return math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)


class SphericalDistribution(ABC):
    """A distribution around a mean direction, or one distribution for each row of ``mean``.

    Args:
        mean: Mean directions ``(…, d)``; they are normalized. d is at least 2.
        concentration: κ ≥ 0 of shape ``(…)``.

    Raises:
        ValueError: If the shapes do not fit.
    """

    def __init__(self, mean: Float[Tensor, "..."], concentration: Float[Tensor, "..."]):
        if mean.shape[:-1] != concentration.shape or mean.shape[-1] < 2:
            raise ValueError(
                "mean must have shape (…, d) with d ≥ 2 and concentration the shape (…), got "
                f"{tuple(mean.shape)} and {tuple(concentration.shape)}"
            )
        self.mean, self.concentration, self.dim = normalize(mean), concentration, mean.shape[-1]

    @abstractmethod
    def log_density(self, x: Float[Tensor, "*any d"]) -> Float[Tensor, "*any"]:
        """Return log p of unit vectors, whose leading axes broadcast with those of the mean."""

    @abstractmethod
    def entropy(self) -> Float[Tensor, "*batch"]:
        """Return −E log p."""

    @abstractmethod
    def sample_cosine(self, shape: torch.Size, generator: torch.Generator | None = None) -> Float[Tensor, "*any"]:
        """Draw cosines t = μ·x of the given shape, differentiable in the concentration."""

    def divergence_from_uniform(self) -> Float[Tensor, "*batch"]:
        """Return KL(p ‖ uniform) = log area − entropy, which is 0 at κ = 0."""
        return log_sphere_area(self.dim) - self.entropy()

    def sample(self, count: int | None = None, *, generator: torch.Generator | None = None) -> Float[Tensor, "*any d"]:
        """Draw directions, differentiable in the mean and the concentration.

        First draw a cosine t and a uniform direction v orthogonal to the first axis. The Householder reflection that
        exchanges the first axis and the mean then maps (t, √(1 − t²)·v) to the sample.

        Args:
            count: Number of samples per mean. None draws one sample without an additional axis.
            generator: Source of randomness.

        Returns:
            Unit vectors of shape ``(count, …, d)``, or ``(…, d)``.
        """
        shape = self.concentration.shape if count is None else torch.Size((count, *self.concentration.shape))
        t = self.sample_cosine(shape, generator)[..., None]
        noise = torch.randn(*shape, self.dim - 1, generator=generator, dtype=self.mean.dtype, device=self.mean.device)
        # (1 − t)(1 + t) is more accurate near the poles than 1 − t². At a pole the slope of the root is infinite.
        rest = ((1 - t) * (1 + t)).clamp_min(torch.finfo(t.dtype).tiny).sqrt()
        start = torch.cat([t, rest * normalize(noise)], -1)
        axis = torch.zeros_like(self.mean)
        axis[..., 0] = 1
        mirror = normalize(axis - self.mean)  # 0, and so no reflection, if the mean is the axis
        return normalize(start - 2 * (start * mirror).sum(-1, keepdim=True) * mirror)

    def _compute_cosine(self, x: Tensor) -> Tensor:
        return (self.mean * x).sum(-1).clamp(-1, 1)


class PowerSpherical(SphericalDistribution):
    r"""The power spherical distribution p(x) ∝ (1 + μ·x)^κ (De Cao and Aziz, 2020; arXiv:2006.04437).

    (1 + μ·x)/2 follows Beta(α, β) with α = (d − 1)/2 + κ and β = (d − 1)/2. Hence
    log p = −(α + β)·log 2 − β·log π − log Γ(α) + log Γ(α + β) + κ·log(1 + μ·x).

    Args:
        mean: Mean directions ``(…, d)``; they are normalized.
        concentration: κ ≥ 0 of shape ``(…)``.

    >>> p = PowerSpherical(torch.eye(3)[:1], torch.tensor([20.0]))
    >>> p.sample(500).shape, p.mean_cosine()
    (torch.Size([500, 1, 3]), tensor([0.9091]))
    >>> PowerSpherical(torch.eye(3)[:1], torch.zeros(1)).divergence_from_uniform().abs().item() < 1e-5
    True
    """

    def _compute_beta_parameters(self) -> tuple[Tensor, float]:
        beta = (self.dim - 1) / 2
        return self.concentration.double() + beta, beta

    def _compute_log_normalizer(self) -> Tensor:
        """Return −log ∫(1 + μ·x)^κ in float64, because the difference of two log Γ loses the digits of float32."""
        alpha, beta = self._compute_beta_parameters()
        return (
            torch.lgamma(alpha + beta) - torch.lgamma(alpha) - (alpha + beta) * math.log(2) - beta * math.log(math.pi)
        )

    def log_density(self, x: Float[Tensor, "*any d"]) -> Float[Tensor, "*any"]:
        """Return log p of unit vectors."""
        kappa = self.concentration.double()
        power = torch.xlogy(kappa, 1 + self._compute_cosine(x).double())
        return (self._compute_log_normalizer() + power).to(self.mean.dtype)

    def entropy(self) -> Float[Tensor, "*batch"]:
        """Return −log normalizer − κ·(log 2 + ψ(α) − ψ(α + β)), exactly."""
        alpha, beta = self._compute_beta_parameters()
        expected = math.log(2) + torch.digamma(alpha) - torch.digamma(alpha + beta)  # of log(1 + μ·x)
        return (-self._compute_log_normalizer() - self.concentration.double() * expected).to(self.mean.dtype)

    def mean_cosine(self) -> Float[Tensor, "*batch"]:
        """Return E μ·x = (α − β)/(α + β)."""
        alpha, beta = self._compute_beta_parameters()
        return ((alpha - beta) / (alpha + beta)).to(self.mean.dtype)

    def sample_cosine(self, shape: torch.Size, generator: torch.Generator | None = None) -> Float[Tensor, "*any"]:
        """Draw t = 2·Beta(α, β) − 1 from two gamma variables, which torch can differentiate."""
        alpha, beta = self._compute_beta_parameters()
        alpha = alpha.expand(shape).contiguous()
        first = torch._standard_gamma(alpha, generator=generator)
        second = torch._standard_gamma(torch.full_like(alpha, beta), generator=generator)
        return ((first - second) / (first + second)).to(self.mean.dtype)


class VonMisesFisher(SphericalDistribution):
    r"""The von Mises–Fisher distribution p(x) ∝ e^{κ·μ·x}.

    The normalizer is 1/(area·M_d(κ)) with M_d of :func:`~hypersphere.geometry.log_mean_exponential`, which is accurate in
    high dimensions.

    Args:
        mean: Mean directions ``(…, d)``; they are normalized.
        concentration: κ ≥ 0 of shape ``(…)``.

    >>> p = VonMisesFisher(torch.eye(3)[:1], torch.tensor([20.0]))
    >>> p.sample(500).shape, p.mean_cosine()  # coth κ − 1/κ
    (torch.Size([500, 1, 3]), tensor([0.9500]))
    """

    def log_density(self, x: Float[Tensor, "*any d"]) -> Float[Tensor, "*any"]:
        """Return log p of unit vectors."""
        kappa = self.concentration.double()
        value = (
            kappa * self._compute_cosine(x).double() - log_mean_exponential(kappa, self.dim) - log_sphere_area(self.dim)
        )
        return value.to(self.mean.dtype)

    def entropy(self) -> Float[Tensor, "*batch"]:
        """Return log area + log M_d(κ) − κ·A_d(κ)."""
        return (log_sphere_area(self.dim) - self._compute_divergence()).to(self.mean.dtype)

    def divergence_from_uniform(self) -> Float[Tensor, "*batch"]:
        """Return κ·A_d(κ) − log M_d(κ), without the difference of two large entropies."""
        return self._compute_divergence().to(self.mean.dtype)

    def mean_cosine(self) -> Float[Tensor, "*batch"]:
        """Return E μ·x = A_d(κ)."""
        return mean_length(self.concentration, self.dim).to(self.mean.dtype)

    def _compute_divergence(self) -> Tensor:
        kappa = self.concentration.double()
        return kappa * mean_length(kappa, self.dim) - log_mean_exponential(kappa, self.dim)

    def sample_cosine(self, shape: torch.Size, generator: torch.Generator | None = None) -> Float[Tensor, "*any"]:
        """Draw t by rejection (Wood, 1994): t = (1 − (1 + b)·ε)/(1 − (1 − b)·ε) with ε of a Beta distribution.

        The gradient does not pass through the rejection. It is dt/dκ = −∂F/∂κ / p(t) with F the distribution function of t
        (implicit reparameterization, arXiv:1805.08498).
        """
        kappa = self.concentration.double().expand(shape)
        with torch.no_grad():
            t = self._sample_by_rejection(kappa, generator)
        if kappa.requires_grad:
            t = t + (kappa - kappa.detach()) * self._compute_slope_of_cosine(t, kappa.detach())
        return t.to(self.mean.dtype)

    def _sample_by_rejection(self, kappa: Tensor, generator: torch.Generator | None) -> Tensor:
        rest = self.dim - 1
        b = rest / (2 * kappa + (4 * kappa.square() + rest**2).sqrt())  # this form has no cancellation for large κ
        x0 = (1 - b) / (1 + b)
        log_bound = kappa * x0 + rest * torch.log1p(-x0.square())
        cosines, is_missing = torch.zeros_like(kappa), torch.ones_like(kappa, dtype=torch.bool)
        half = torch.full_like(kappa, rest / 2)
        while bool(is_missing.any()):
            first, second = (torch._standard_gamma(half, generator=generator) for _ in range(2))
            epsilon = first / (first + second)
            t = (1 - (1 + b) * epsilon) / (1 - (1 - b) * epsilon)
            u = torch.rand(kappa.shape, generator=generator, dtype=kappa.dtype, device=kappa.device)
            accepted = is_missing & (kappa * t + rest * torch.log1p(-x0 * t) - log_bound >= u.log())
            cosines = torch.where(accepted, t, cosines)
            is_missing &= ~accepted
        return cosines

    def _compute_slope_of_cosine(self, t: Tensor, kappa: Tensor) -> Tensor:
        """Return dt/dκ at a fixed value of the distribution function.

        With the angle φ = arccos t and its density q(φ) ∝ e^{κ·cos φ}·(sin φ)^{d−2}, ∂F/∂κ is an integral of
        (cos φ − A_d(κ))·q(φ). Gauss–Legendre quadrature computes it over the tail beyond t, up to 20 standard deviations of t.
        The density is divided by its value at t, so that nothing overflows.
        """
        mean = mean_length(kappa, self.dim)
        variance = 1 - mean.square() - (self.dim - 1) * mean / torch.where(kappa < 1e-3, 1, kappa)
        deviation = torch.where(kappa < 1e-3, 1 / self.dim, variance).clamp_min(1e-14).sqrt()
        side = torch.where(t >= mean, 1.0, -1.0).to(t)
        phi, end = t.clamp(-1, 1).arccos(), (t + 20 * side * deviation).clamp(-1, 1).arccos()
        nodes, weights = _compute_quadrature(t)
        angles = phi[..., None] + (end - phi)[..., None] * (nodes + 1) / 2
        sine = phi.sin().clamp_min(1e-150)
        log_ratio = kappa[..., None] * (angles.cos() - t[..., None])
        log_ratio = log_ratio + (self.dim - 2) * (angles.sin().clamp_min(1e-150).log() - sine[..., None].log())
        integral = ((angles.cos() - mean[..., None]) * log_ratio.exp() * weights).sum(-1) * (end - phi).abs() / 2
        return side * sine * integral


def _compute_quadrature(like: Tensor, count: int = 64) -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return torch.from_numpy(nodes).to(like), torch.from_numpy(weights).to(like)
