r"""Kernels: an energy is one decreasing function φ of the squared distance q between two points of the sphere.

Everything else — full or half space, chunks, gradients, close pairs — is shared by all kernels (:mod:`.pairs`).
Below a floor on the distance a kernel is continued by its tangent in q, so that duplicates have a finite value, and
points that nearly coincide still push each other apart, with a bounded force.
"""

import math
from typing import ClassVar, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

Distance: TypeAlias = Literal["euclidean", "angular"]


class Kernel:
    """φ(q) with its slope; ``name`` and ``parameter`` identify it where only plain values can be passed."""

    name: ClassVar[str]

    def __init__(self, parameter: float):
        self.parameter = float(parameter)

    @property
    def floor(self) -> float:
        """The distance below which φ is continued by its tangent in q."""
        return 1e-6

    def value(self, q: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """φ(q) of squared distances q > 0."""
        raise TypeError(f"{type(self).__name__} must define value(q)")

    def slope(self, q: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """dφ/dq of squared distances q > 0."""
        raise TypeError(f"{type(self).__name__} must define slope(q)")

    def value_and_slope(self, q: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """Both, where they share work; the memory of ``q`` may be used for one of them."""
        return self.value(q), self.slope(q)

    def __call__(self, q: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """φ(q) with the tangent below the floor: differentiable as often as one likes, for any q."""
        least = torch.full((), self.floor**2, dtype=q.dtype, device=q.device)
        tangent = self.value(least) + self.slope(least) * (q - least)
        return torch.where(q < least, tangent, self.value(q.clamp_min(least)))


class Riesz(Kernel):
    r"""f_s(z) = z^{−s} for s > 0, log(1/z) for s = 0, of the Euclidean distance z = √q  (eq. 5.1).

    The floor is 10⁻⁶, or more for large ``s``, so that z^{−s−1} stays below 10³²: s = 7 has 10⁻⁴.

    >>> Riesz(2).value(torch.tensor([4.0, 0.25])), Riesz(0).value(torch.ones(1))
    (tensor([0.2500, 4.0000]), tensor([-0.]))
    """

    name = "riesz"

    def __init__(self, parameter: float = 2):
        if not (math.isfinite(parameter) and parameter >= 0):
            raise ValueError(f"s must be a number ≥ 0, got {parameter!r}")
        super().__init__(parameter)

    @property
    def floor(self) -> float:
        """max(10⁻⁶, 10^{−32/(s+1)})."""
        return max(1e-6, 10 ** (-32 / (self.parameter + 1)))

    def value(self, q: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """q^{−s/2}, or −½·log q."""
        return -0.5 * q.log() if self.parameter == 0 else _power(q, self.parameter / 2)

    def slope(self, q: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """−(s/2)·q^{−s/2−1}, or −1/(2q)."""
        s = self.parameter
        return -0.5 / q if s == 0 else -s / 2 * q ** (-s / 2 - 1)

    def value_and_slope(self, q: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """The slope is −(s/2)·φ/q."""
        s = self.parameter
        if s == 2:
            value = q.reciprocal_()
            return value, value.square().neg_()
        value = self.value(q)
        slope = q.reciprocal_().mul_(-(s or 1) / 2)
        return value, slope.mul_(value) if s else slope


class AngularRiesz(Riesz):
    r"""f_s of the angle, f_s(arccos(ŵ_i·ŵ_j))  (eq. 5.5): θ = 2·atan2(√q, √(4 − q)).

    >>> AngularRiesz(1).value(torch.tensor([2.0])) * torch.pi
    tensor([2.])
    """

    name = "angular"

    def value(self, q: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """θ^{−s}, or −log θ."""
        return self._of_angle(_angle(q))

    def slope(self, q: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """f_s'(θ)/√(q(4 − q))."""
        return self._slope_in_angle(_angle(q)) * torch.rsqrt(q * _complement(q))

    def value_and_slope(self, q: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """One angle serves both."""
        theta = _angle(q)
        return self._of_angle(theta), self._slope_in_angle(theta) * torch.rsqrt(q * _complement(q))

    def _of_angle(self, theta: Tensor) -> Tensor:
        return -theta.log() if self.parameter == 0 else _power(theta, self.parameter)

    def _slope_in_angle(self, theta: Tensor) -> Tensor:
        s = self.parameter
        return -1 / theta if s == 0 else -s * theta ** (-s - 1)


class Gaussian(Kernel):
    r"""exp(−t·q), the Gaussian potential of pairs; bounded, so it needs no floor.

    >>> Gaussian(2).value(torch.tensor([0.0]))
    tensor([1.])
    """

    name = "gaussian"

    def __init__(self, parameter: float = 2):
        if not (math.isfinite(parameter) and parameter > 0):
            raise ValueError(f"t must be a number > 0, got {parameter!r}")
        super().__init__(parameter)

    def value(self, q: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """exp(−t·q)."""
        return torch.exp(-self.parameter * q)

    def slope(self, q: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """−t·exp(−t·q)."""
        return -self.parameter * self.value(q)


KERNELS: dict[str, type[Kernel]] = {kernel.name: kernel for kernel in (Riesz, AngularRiesz, Gaussian)}


def riesz_kernel(s: float, distance: Distance) -> Riesz:
    """The kernel f_s of a Euclidean or an angular distance."""
    if distance not in ("euclidean", "angular"):
        raise ValueError(f'distance must be "euclidean" or "angular", got {distance!r}')
    return Riesz(s) if distance == "euclidean" else AngularRiesz(s)


def _power(x: Tensor, exponent: float) -> Tensor:
    """x^{−exponent}; the exponents of s = 1 and 2 have cheaper instructions of their own."""
    if exponent == 0.5:
        return torch.rsqrt(x)
    return torch.reciprocal(x) if exponent == 1 else torch.pow(x, -exponent)


def _angle(q: Tensor) -> Tensor:
    return 2 * torch.atan2(q.sqrt(), _complement(q).sqrt())


def _complement(q: Tensor) -> Tensor:
    """4 − q, the squared distance to the antipode, kept from 0, where the angle's slope in q is infinite."""
    return (4 - q).clamp_min(1e-24)
