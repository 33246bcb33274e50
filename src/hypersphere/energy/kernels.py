r"""Kernels: functions φ of the squared distance q between two points of the sphere. A kernel defines an energy.

All kernels share the code for full and half space, chunks, gradients and close pairs (:mod:`.pair_sums`). Below a floor
on the distance, φ is replaced by its tangent in q. Duplicates then have a finite energy, and points that nearly coincide
still repel each other with a bounded force.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

_CLASSES: "dict[str, type[Kernel]]" = {}

Distance: TypeAlias = Literal["euclidean", "angular"]


class Kernel(ABC):
    """A function φ(q) with its slope. Subclasses implement ``value`` and ``slope``; pass an instance as ``kernel``.

    >>> class Linear(Kernel):
    ...     def value(self, q):
    ...         return 4 - q
    ...     def slope(self, q):
    ...         return -torch.ones_like(q)
    >>> hs.hyperspherical_energy(torch.eye(3), kernel=Linear())
    tensor(2.)
    """

    antipodal: ClassVar[bool] = False
    """Whether φ is so steep near q = 4 that nearly antipodal pairs must be computed like close pairs."""
    of_angle: ClassVar[bool] = False
    """Whether φ is a function of the angle, so that the lengths β of weighted neurons have no meaning."""

    def __init_subclass__(cls) -> None:
        """Register the class, and refuse a class whose arguments cannot be stored in a compiled graph."""
        super().__init_subclass__()
        arguments = list(inspect.signature(cls.__init__).parameters)[1:]
        if cls.parameters is Kernel.parameters and cls.__init__ is not object.__init__ and arguments:
            raise TypeError(f"{cls.__name__} takes {', '.join(arguments)}; its property parameters must give them")
        _CLASSES[cls.__module__ + "." + cls.__qualname__] = cls

    @property
    def parameters(self) -> tuple[float, ...]:
        """Return the constructor's arguments as numbers. A compiled graph stores these, because it cannot store objects."""
        return ()

    @classmethod
    def from_parameters(cls, parameters: Sequence[float]) -> "Kernel":
        """Return the kernel with these :attr:`parameters`.

        Args:
            parameters: The numbers, all as floats.
        """
        return cls(*parameters)

    def for_dimension(self, dim: int) -> "Kernel":
        """Return the kernel for points of this dimension. Most kernels are the same in every dimension.

        Args:
            dim: Dimension of the points.
        """
        return self

    @property
    def floor(self) -> float:
        """Return the distance below which φ is continued by its tangent in q."""
        return 1e-6

    @abstractmethod
    def value(self, q: Tensor) -> Tensor:
        """Return φ(q) of squared distances q > 0."""

    @abstractmethod
    def slope(self, q: Tensor) -> Tensor:
        """Return dφ/dq of squared distances q > 0."""

    def value_and_slope(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return φ(q) and dφ/dq; may overwrite ``q``. Subclasses override it to share computations."""
        return self.value(q), self.slope(q)

    def __call__(self, q: Tensor) -> Tensor:
        """Return φ(q), continued by its tangent below the floor. Can be differentiated any number of times, for any q."""
        least = torch.full((), self.floor**2, dtype=q.dtype, device=q.device)
        tangent = self.value(least) + self.slope(least) * (q - least)
        return torch.where(q < least, tangent, self.value(q.clamp_min(least)))


class Riesz(Kernel):
    r"""f_s(z) = z^{−s} for s > 0, log(1/z) for s = 0, of the Euclidean distance z = √q  (eq. 5.1).

    The floor is 10⁻⁶, or more for large ``s``, so that z^{−s−1} stays below 10³²: s = 7 has 10⁻⁴.

    >>> Riesz(2).value(torch.tensor([4.0, 0.25])), Riesz(0).value(torch.ones(1))
    (tensor([0.2500, 4.0000]), tensor([-0.]))
    """

    def __init__(self, s: float = 2):  # the usual choice of Liu (2020)
        if not (math.isfinite(s) and s >= 0):
            raise ValueError(f"s must be a number ≥ 0, got {s!r}")
        self.s = float(s)

    def __repr__(self) -> str:
        """Return the constructor's call."""
        return f"{type(self).__name__}(s={self.s:g})"

    @property
    def parameters(self) -> tuple[float, ...]:
        """Return (s,)."""
        return (self.s,)

    @property
    def floor(self) -> float:
        """Return max(10⁻⁶, 10^{−32/(s+1)})."""
        return max(1e-6, 10 ** (-32 / (self.s + 1)))

    def value(self, q: Tensor) -> Tensor:
        """Return q^{−s/2}, or −½·log q."""
        return -0.5 * q.log() if self.s == 0 else _power(q, self.s / 2)

    def slope(self, q: Tensor) -> Tensor:
        """Return −(s/2)·q^{−s/2−1}, or −1/(2q)."""
        s = self.s
        return -0.5 / q if s == 0 else -s / 2 * q ** (-s / 2 - 1)

    def value_and_slope(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return φ(q) and dφ/dq = −(s/2)·φ/q."""
        s = self.s
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

    antipodal = True
    of_angle = True

    def value(self, q: Tensor) -> Tensor:
        """Return θ^{−s}, or −log θ."""
        return self._value_at_angle(_angle(q))

    def slope(self, q: Tensor) -> Tensor:
        """Return f_s'(θ)/√(q(4 − q))."""
        return self._slope_at_angle(_angle(q)) * torch.rsqrt(q * _complement(q))

    def value_and_slope(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return φ(q) and dφ/dq; the angle is computed once."""
        theta = _angle(q)
        return self._value_at_angle(theta), self._slope_at_angle(theta) * torch.rsqrt(q * _complement(q))

    def _value_at_angle(self, theta: Tensor) -> Tensor:
        return -theta.log() if self.s == 0 else _power(theta, self.s)

    def _slope_at_angle(self, theta: Tensor) -> Tensor:
        s = self.s
        return -1 / theta if s == 0 else -s * theta ** (-s - 1)


class Gaussian(Kernel):
    r"""exp(−t·q), the Gaussian potential of a pair. It is bounded, so it needs no floor.

    >>> Gaussian(2).value(torch.tensor([0.0]))
    tensor([1.])
    """

    def __init__(self, t: float = 2):
        if not (math.isfinite(t) and t > 0):
            raise ValueError(f"t must be a number > 0, got {t!r}")
        self.t = float(t)

    def __repr__(self) -> str:
        """Return the constructor's call."""
        return f"Gaussian(t={self.t:g})"

    @property
    def parameters(self) -> tuple[float, ...]:
        """Return (t,)."""
        return (self.t,)

    def value(self, q: Tensor) -> Tensor:
        """Return exp(−t·q)."""
        return torch.exp(-self.t * q)

    def slope(self, q: Tensor) -> Tensor:
        """Return −t·exp(−t·q)."""
        return -self.t * self.value(q)


def choose_kernel(s: float, distance: Distance, kernel: Kernel | None = None) -> Kernel:
    """Return ``kernel`` if given, otherwise the kernel f_s of the Euclidean or the angular distance."""
    if distance not in ("euclidean", "angular"):
        raise ValueError(f'distance must be "euclidean" or "angular", got {distance!r}')
    if kernel is None:
        return Riesz(s) if distance == "euclidean" else AngularRiesz(s)
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel must be a Kernel object, such as Gaussian(2), got {kernel!r}")
    if s != 2 or distance != "euclidean":
        raise ValueError(f"kernel replaces s and distance; leave those out, got s={s!r}, distance={distance!r}")
    return kernel


def rebuild_kernel(name: str, parameters: Sequence[float]) -> Kernel:
    """Return a kernel from the full name of its class and its :attr:`Kernel.parameters`."""
    return _CLASSES[name].from_parameters(parameters)


def _power(x: Tensor, exponent: float) -> Tensor:
    """Return x^{−exponent}, with cheaper instructions for the exponents ½ and 1."""
    if exponent == 0.5:
        return torch.rsqrt(x)
    return torch.reciprocal(x) if exponent == 1 else torch.pow(x, -exponent)


def _angle(q: Tensor) -> Tensor:
    return 2 * torch.atan2(q.sqrt(), _complement(q).sqrt())


def _complement(q: Tensor) -> Tensor:
    """Return 4 − q, the squared distance to the antipode, clamped above 0, where the slope of the angle is infinite."""
    return (4 - q).clamp_min(1e-24)
