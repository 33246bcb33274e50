r"""Kernels that depend on the dimension of the sphere: heat kernel, maximum mean discrepancy and kernel Stein discrepancy.

A function of the angle between two points of the unit sphere of R^d has an expansion

.. math:: φ = Σ_k b_k·R_k(\cos θ), \quad R_k(1) = 1,

in normalized Gegenbauer polynomials R_k of degree k. R_k is the mean of products of the N_k spherical harmonics of degree k.
They all have the eigenvalue λ_k = k(k + d − 2) of −Δ, where Δ is the Laplacian of the sphere. Over uniform points every R_k
with k ≥ 1 has the mean 0, so b_0 is the energy of the uniform distribution. An energy with b_0 = 0 and b_k > 0 is a squared
discrepancy from the uniform distribution. The mean over pairs i ≠ j is an unbiased estimate of it, which may be negative.

The idea is from Nicollier et al. (2026, arXiv:2606.17603), of which only the abstract was available; the formulas are derived
here. Times are scaled by d − 1, so that harmonics of degree 1 decay by e^{−t} in every dimension.
"""

import functools
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ..geometry import log_mean_exponential
from .kernels import Kernel

MAX_DEGREE = 400
"""Largest degree of an expansion. A kernel that needs more is so sharp that it only acts on points that nearly coincide."""
NEGLIGIBLE = 1e-15
"""The expansion ends at a degree whose weight is below this share of the largest weight."""

Self = TypeVar("Self", bound="DimensionalKernel")


class DimensionalKernel(Kernel):
    """A kernel of unit vectors that depends on their dimension. The energy passes the dimension when it uses the kernel.

    Args:
        t: The parameter of the kernel; None chooses it by the dimension.
        dim: Dimension d of the points; None takes that of the neurons or features.

    >>> Heat().for_dimension(64)
    Heat(t=2.833, dim=64)
    """

    of_angle = True

    def __init__(self, t: float | None = None, dim: int | None = None):
        if t is not None and not (math.isfinite(t) and t > 0):
            raise ValueError(f"t must be a number > 0, got {t!r}")
        if dim is not None and dim < 2:
            raise ValueError(f"dim must be an integer ≥ 2 or None, got {dim!r}")
        self.t = None if t is None else float(t)
        self.dim = None if dim is None else int(dim)

    @property
    def parameters(self) -> tuple[float, ...]:
        """Return t and d, without those that are None."""
        return tuple(float(number) for number in (self.t, self.dim) if number is not None)

    @classmethod
    def from_parameters(cls, parameters: Sequence[float]) -> "DimensionalKernel":
        """Return the kernel with these numbers t and d."""
        return cls(parameters[0] if parameters else None, int(parameters[1]) if len(parameters) > 1 else None)

    def for_dimension(self: Self, dim: int) -> Self:
        """Return the kernel for points of this dimension.

        Args:
            dim: Dimension d.

        Raises:
            ValueError: If the kernel was made for another dimension.
        """
        if self.dim not in (None, dim):
            raise ValueError(
                f"{self!r} was made for dim={self.dim}, but the points have {dim} dimensions; leave dim out"
            )
        if self.dim is not None and self.t is not None:
            return self
        return type(self)(self.default_time(dim) if self.t is None else self.t, dim)

    @staticmethod
    def default_time(dim: int) -> float:
        """Return the default t for a dimension."""
        return math.log1p(dim / 4)

    def get_t_and_dim(self) -> tuple[float, int]:
        """Return t and the dimension; raise a ValueError if one of them is not set."""
        if self.t is None or self.dim is None:
            raise ValueError(f"{self!r} needs the dimension of its points: call for_dimension, or give t and dim")
        return self.t, self.dim

    def __repr__(self) -> str:
        """Return the constructor's call."""
        known = [f"{name}={value:.4g}" for name, value in (("t", self.t), ("dim", self.dim)) if value is not None]
        return f"{type(self).__name__}({', '.join(known)})"


class _Series(DimensionalKernel):
    """A kernel that is computed by its expansion in Gegenbauer polynomials."""

    def value(self, q: Tensor) -> Tensor:
        """Return Σ b_k·R_k(1 − q/2)."""
        t, dim = self.get_t_and_dim()
        return sum_gegenbauer(_compute_weights(type(self), t, dim), dim, (1 - q / 2).clamp(-1, 1))

    def slope(self, q: Tensor) -> Tensor:
        """Return dφ/dq. The derivative of R_k in d dimensions is λ_k/(d − 1)·R_{k−1} of d + 2 dimensions."""
        t, dim = self.get_t_and_dim()
        weights = _compute_weights(type(self), t, dim)
        derivative = [b * k * (k + dim - 2) / (dim - 1) for k, b in enumerate(weights)][1:]
        return -0.5 * sum_gegenbauer(derivative, dim + 2, (1 - q / 2).clamp(-1, 1))

    @classmethod
    @abstractmethod
    def log_filter(cls, rate: float, t: float) -> float:
        """Return log(b_k/N_k) of harmonics whose scaled eigenvalue λ_k/(d − 1) is ``rate``; −∞ for b_k = 0."""


class Heat(_Series):
    r"""Heat kernel of the sphere, Σ_k N_k·e^{−tλ_k/(d−1)}·R_k(cos θ): the density of heat that has diffused from one point to the other.

    It is positive, and its mean over uniform points is exactly 1 in every dimension, so energies of layers of different
    dimensions can be compared. Use it instead of ``Gaussian`` if the dimension varies or the value itself matters.

    Args:
        t: Diffusion time; smaller values give a sharper kernel. None is ln(1 + d/4), with which the kernel approaches the
            shape of ``Gaussian(2)`` in high dimensions: the weight of degree 1, d·e^{−t} = 4d/(d + 4), approaches its slope 4.
        dim: Dimension of the points; taken from them if None.

    >>> hs.hyperspherical_energy(torch.eye(64), kernel=Heat())  # orthogonal directions are a little better than random ones
    tensor(0.89...)
    """

    @classmethod
    def log_filter(cls, rate: float, t: float) -> float:
        """Return −t·λ_k/(d − 1)."""
        return -t * rate


class MMD(DimensionalKernel):
    r"""Squared maximum mean discrepancy from the uniform distribution, with a Gaussian kernel: e^{−tq} − E e^{−tq}.

    The expectation over uniform points is e^{−2t}·M_d(2t) with the moment generating function M_d of
    :func:`hypersphere.geometry.log_mean_exponential`, exact in any dimension. The gradient is that of ``Gaussian(t)``.
    Random directions have the energy 0 on average. Use it to test directions for uniformity.

    Args:
        t: Sharpness of the Gaussian. None is 2, as in Wang and Isola (2020).
        dim: Dimension of the points; taken from them if None.

    >>> hs.hyperspherical_energy(torch.eye(8), kernel=MMD())
    tensor(-0.0275)
    """

    @staticmethod
    def default_time(dim: int) -> float:
        """Return 2."""
        return 2.0

    def value(self, q: Tensor) -> Tensor:
        """Return e^{−tq} minus its mean over the sphere."""
        t, dim = self.get_t_and_dim()
        return torch.exp(-t * q) - _mean_gaussian(t, dim)

    def slope(self, q: Tensor) -> Tensor:
        """Return −t·e^{−tq}."""
        t, _ = self.get_t_and_dim()
        return -t * torch.exp(-t * q)


class KernelStein(_Series):
    r"""Squared kernel Stein discrepancy from the uniform distribution: Σ_k N_k·(λ_k/(d−1))²·e^{−tλ_k/(d−1)}·R_k(cos θ).

    The Laplacian Δ is a Stein operator of the uniform distribution, because ∫Δf = 0 for every f. Applied to both arguments of
    the heat kernel it gives Δ_x Δ_y H_t, whose mean over uniform points is 0 without any subtraction. Compared with
    :class:`Heat`, fine structure has more weight, by the squares of the eigenvalues. The kernel is not monotone in the angle.

    Args:
        t: Diffusion time of the heat kernel, as in :class:`Heat`.
        dim: Dimension of the points; taken from them if None.

    >>> octahedron = torch.cat([torch.eye(3), -torch.eye(3)])
    >>> hs.hyperspherical_energy(octahedron, kernel=KernelStein()) < hs.hyperspherical_energy(octahedron.abs() + 0.1, kernel=KernelStein())
    tensor(True)
    """

    @classmethod
    def log_filter(cls, rate: float, t: float) -> float:
        """Return 2·log(λ_k/(d − 1)) − t·λ_k/(d − 1)."""
        return 2 * math.log(rate) - t * rate if rate > 0 else -math.inf


def sum_gegenbauer(weights: Sequence[float], dim: int, cos: Tensor) -> Tensor:
    r"""Return Σ_k b_k·R_k(cos θ), by (k + d − 2)·R_{k+1} = (2k + d − 2)·cos θ·R_k − k·R_{k−1}.

    Args:
        weights: b_0, b_1, …
        dim: Dimension d ≥ 2 of the sphere's space; R_k(cos θ) = cos kθ for d = 2 and the Legendre polynomial for d = 3.
        cos: Cosines.

    Returns:
        The sums, in the shape of ``cos``.

    >>> sum_gegenbauer([0.0, 0.0, 1.0], 3, torch.tensor([0.0, 1.0]))  # (3c² − 1)/2
    tensor([-0.5000,  1.0000])
    """
    previous, current = torch.ones_like(cos), cos
    total = weights[0] * previous if weights else torch.zeros_like(cos)
    for k, weight in enumerate(weights[1:], start=1):
        total = total + weight * current
        following = ((2 * k + dim - 2) / (k + dim - 2)) * cos * current - (k / (k + dim - 2)) * previous
        previous, current = current, following
    return total


@functools.lru_cache(maxsize=256)
def _compute_weights(kind: type[_Series], t: float, dim: int) -> tuple[float, ...]:
    """Return b_k up to the degree beyond which they are negligible."""
    logs: list[float] = []
    for k in range(MAX_DEGREE + 1):
        logs.append(_log_count(k, dim) + kind.log_filter(k * (k + dim - 2) / (dim - 1), t))
        peak = max(logs)
        if logs[-1] < peak + math.log(NEGLIGIBLE) and peak > -math.inf and logs.index(peak) < k:
            return tuple(map(math.exp, logs))
    raise ValueError(
        f"t={t:g} is too small for {kind.__name__} in {dim} dimensions: the expansion would need more than {MAX_DEGREE} degrees"
    )


def _log_count(degree: int, dim: int) -> float:
    """Return the logarithm of N_k, the number of spherical harmonics of a degree."""
    if degree == 0:
        return 0.0
    return (
        math.log(2 * degree + dim - 2)
        - math.log(degree)
        + math.lgamma(degree + dim - 2)
        - math.lgamma(degree)
        - math.lgamma(dim - 1)
    )


@functools.lru_cache(maxsize=256)
def _mean_gaussian(t: float, dim: int) -> float:
    """Return E e^{−t·q} of uniform points."""
    return math.exp(float(log_mean_exponential(torch.tensor(2 * t, dtype=torch.float64), dim)) - 2 * t)
