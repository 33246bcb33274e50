r"""Angular functions g(θ), shared by the objectives (Part I) and the operators (Part II).

Each maps cos θ to g(θ), which decreases from 1 at θ = 0 to −1 at θ = π and is 0 at π/2 (eq. 4.11–4.14); :class:`Power` is an
exception. Any other callable on cosines can be used in their place.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .geometry import arcsin, upcast
from .geometry.latitudes import evaluate_sine_polynomial, evaluate_slope_polynomial, latitude, tanh_polynomials

AngularLike: TypeAlias = nn.Module | Callable[[Tensor], Tensor]


class Angular(nn.Module, ABC):
    """g as a function of cos θ. ``dim`` is the axis of the neurons, for functions with a parameter per neuron.

    A function that is simpler in θ than in cos θ also overrides :meth:`at`. A head uses it if it knows the angle, because an angle
    that is computed from a cosine near ±1 has lost half of its digits.

    >>> class Cube(Angular):
    ...     def forward(self, cos, dim=-1):
    ...         return cos**3
    >>> Cube()(torch.tensor([1.0, 0.5, -1.0]))
    tensor([ 1.0000,  0.1250, -1.0000])
    """

    odd: ClassVar[bool] = False
    """Whether g(π − θ) = −g(θ). Then g is 0 at π/2, so an operator returns 0 for a zero vector without a special case."""

    def __init_subclass__(cls, **options: Any):
        """Remove the inherited slope and symmetry if this class overrides ``forward``, which they belong to."""
        super().__init_subclass__(**options)
        own = cls.__dict__
        if "forward" in own:
            cls.odd = own.get("odd", False)
            setattr(cls, "with_slope", own.get("with_slope", Angular.with_slope))  # noqa: B010 (mypy: no method is set)
        if "forward" in own or "with_slope" in own:
            setattr(cls, "slope", own.get("slope", Angular.slope))  # noqa: B010

    @abstractmethod
    def forward(self, cos: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return g(θ) for every cosine, in the cosines' dtype."""

    def at(self, theta: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return g(θ) for every angle in [0, π]."""
        return self(torch.cos(theta))

    def span(self, like: Float[Tensor, "..."]) -> float | Float[Tensor, "..."]:
        """Return g(0) − g(π), in the dtype and on the device of ``like``."""
        ends = torch.ones_like(like)
        return self(ends) - self(-ends)

    def with_slope(self, cos: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]] | None:
        """Return g(θ) and ∂g/∂cos θ as new tensors without a graph, or None to leave the slope to autograd.

        It saves an operator passes over its outputs. The values must be those of :meth:`forward` and its derivative, with the
        same bounds at ±1. A function with learned parameters returns None.
        """
        return None

    def slope(self, cos: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return ∂g/∂cos θ alone, for the backward pass of a compiled operator. :meth:`with_slope` must not return None."""
        pair = self.with_slope(cos)
        assert pair is not None
        return pair[1]

    def for_neurons(self, neurons: int) -> "Angular":
        """Return a copy for a layer with this number of neurons if each layer learns its own parameters, otherwise self."""
        return self


class Cosine(Angular):
    r"""g(θ) = cos θ (eq. 3.3, 4.12).

    >>> Cosine()(torch.tensor([1.0, 0.5, -1.0]))
    tensor([ 1.0000,  0.5000, -1.0000])
    """

    odd = True

    def forward(self, cos: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return the cosines unchanged."""
        return cos

    def span(self, like: Float[Tensor, "..."]) -> float:
        """Return 2."""
        return 2.0


class Linear(Angular):
    r"""g(θ) = 1 − 2θ/π (eq. 3.2, 4.11); its slope in cos θ is bounded at ±1.

    >>> Linear()(torch.tensor([1.0, 0.5, -1.0]))
    tensor([ 1.0000,  0.3333, -1.0000])
    """

    odd = True

    def forward(self, cos: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return (2/π)·arcsin(cos θ)."""
        return arcsin(cos) * (2 / math.pi)

    def with_slope(self, cos: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """Return (2/π)·(π/2 − θ) and (2/π)/sin θ."""
        value, inverse_sine = latitude(cos)
        return value.mul_(2 / math.pi), inverse_sine.mul_(2 / math.pi)

    def slope(self, cos: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return (2/π)/sin θ."""
        return (
            evaluate_slope_polynomial(cos, (math.sqrt(2 / math.pi),))
            if cos.dtype == torch.float32
            else super().slope(cos)
        )

    def at(self, theta: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return 1 − 2θ/π, with the same slope everywhere."""
        return 1 - theta * (2 / math.pi)

    def span(self, like: Float[Tensor, "..."]) -> float:
        """Return 2."""
        return 2.0


class SquareCosine(Angular):
    r"""g(θ) = sign(cos θ)·cos²θ (eq. 4.14): flat near the decision boundary θ = π/2.

    >>> SquareCosine()(torch.tensor([1.0, 0.5, -0.5]))
    tensor([ 1.0000,  0.2500, -0.2500])
    """

    odd = True

    def forward(self, cos: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return cos θ·|cos θ|."""
        return cos * cos.abs()

    def with_slope(self, cos: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """Return cos θ·|cos θ| and 2·|cos θ|."""
        size = cos.abs()
        return cos * size, size.mul_(2)

    def span(self, like: Float[Tensor, "..."]) -> float:
        """Return 2."""
        return 2.0


class Power(Angular):
    r"""g(θ) = 2·((cos θ + 1)/2)^t − 1: the similarity of SphereFace2, which is steeper at small angles.

    ``t = 1`` is the cosine; SphereFace2 uses 3. Unlike the other functions it is below 0 at θ = π/2 for t > 1.

    >>> Power(3)(torch.tensor([1.0, 0.0, -1.0]))
    tensor([ 1.0000, -0.7500, -1.0000])
    """

    def __init__(self, t: float = 3.0):
        super().__init__()
        if not 1 <= t <= 100:
            raise ValueError(f"t must be a number in [1, 100], got {t!r}")
        self.t = float(t)

    def forward(self, cos: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return 2·((cos θ + 1)/2)^t − 1. Cosines below −1 are clamped, because a negative number has no real power."""
        return 2 * ((cos + 1) / 2).clamp_min(0) ** self.t - 1

    def with_slope(self, cos: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """Return 2·((cos θ + 1)/2)^t − 1 and t·((cos θ + 1)/2)^{t−1}, 0 below −1."""
        slope = (cos + 1).mul_(0.5).clamp_min_(0).pow_(self.t - 1).mul_(self.t).masked_fill_(cos < -1, 0)
        return self(cos), slope

    def span(self, like: Float[Tensor, "..."]) -> float:
        """Return 2."""
        return 2.0

    def extra_repr(self) -> str:
        """Return the exponent."""
        return f"t={self.t:g}"


class Sigmoid(Angular):
    r"""g(θ) = tanh((π/2 − θ)/2k) / tanh(π/4k), which is eq. 3.4 and 4.13 written without exponentials that overflow.

    A small ``k`` gives a step at π/2, a large ``k`` :class:`Linear`. With ``learnable``, ``k`` is learned per neuron
    (``"filter"``), per layer (``"layer"``) or for all layers that use this object (``"shared"``). The parameter is log k, limited
    so that k is in [10⁻³, 10³]. It starts at 0.5 (3.4.3).

    >>> Sigmoid(k=0.3)(torch.tensor([1.0, 0.5, -1.0]))
    tensor([ 1.0000,  0.7102, -1.0000])
    """

    odd = True
    log_k: nn.Parameter | None

    def __init__(self, k: float = 0.5, learnable: Literal["filter", "layer", "shared", False] = False):
        super().__init__()
        if not 1e-3 <= k <= 1e3:
            raise ValueError(f"k must be a number in [0.001, 1000], got {k!r}")
        if learnable not in ("filter", "layer", "shared", False):
            raise ValueError(f'learnable must be "filter", "layer", "shared" or False, got {learnable!r}')
        self.start, self.learnable = float(k), learnable
        log_k = None if learnable in ("filter", False) else nn.Parameter(torch.tensor(math.log(k)))
        self.register_parameter("log_k", log_k)
        self.value_polynomial, self.slope_polynomial = (None, None) if learnable else tanh_polynomials(self.start)

    @property
    def k(self) -> Tensor:
        """The curvature k, a scalar or one number per neuron."""
        return torch.tensor(self.start) if self.log_k is None else self.log_k.clamp(math.log(1e-3), math.log(1e3)).exp()

    def for_neurons(self, neurons: int) -> "Sigmoid":
        """Return a copy with its own ``k`` for ``"filter"`` and ``"layer"``, otherwise self."""
        if self.learnable in (False, "shared"):
            return self
        own = copy.deepcopy(self)
        if self.learnable == "filter":
            own.log_k = nn.Parameter(torch.full((neurons,), math.log(self.start)))
        return own

    def forward(self, cos: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return g of each cosine. If there is one ``k`` per neuron, the neurons are along ``dim``."""
        return self._evaluate_at_latitude(arcsin(upcast(cos)), dim).to(cos.dtype)

    def with_slope(self, cos: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]] | None:
        """Return, for a fixed ``k``, g and T·(1 − (g/T)²)/(2k·sin θ) with T = 1/tanh(π/4k)."""
        if self.learnable:
            return None
        if self.value_polynomial is not None and cos.dtype == torch.float32:
            value, inverse_sine = evaluate_sine_polynomial(cos, self.value_polynomial)
        else:
            angle, inverse_sine = latitude(cos)
            value = self._evaluate_at_latitude(angle, -1)
        top = 1 / math.tanh(math.pi / (4 * self.start))
        slope = value.new_full((), top / (2 * self.start))  # of g by the latitude, at π/2
        return value, torch.addcmul(slope, value, value, value=-1 / (2 * self.start * top)).mul_(inverse_sine)

    def slope(self, cos: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return T·(1 − (g/T)²)/(2k·sin θ), by a polynomial in sin θ if there is one."""
        if self.slope_polynomial is None or cos.dtype != torch.float32:
            return super().slope(cos)
        return evaluate_slope_polynomial(cos, self.slope_polynomial)

    def at(self, theta: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return g of each angle, without computing the cosine. If there is one ``k`` per neuron, neurons are the last axis."""
        return self._evaluate_at_latitude(math.pi / 2 - upcast(theta), -1).to(theta.dtype)

    def span(self, like: Float[Tensor, "..."]) -> float:
        """Return 2."""
        return 2.0

    def _evaluate_at_latitude(self, latitude: Tensor, dim: int) -> Tensor:
        if self.log_k is None:
            if self.learnable:
                raise ValueError(
                    'Sigmoid(learnable="filter") has one k per neuron: pass it to a layer, or call for_neurons(n) first'
                )
            return torch.tanh(latitude / (2 * self.start)) / math.tanh(math.pi / (4 * self.start))
        k = self.k.to(latitude.dtype)
        if k.ndim:
            k = k.reshape(-1, *[1] * (-dim - 1 if dim < 0 else latitude.ndim - dim - 1))
        return torch.tanh(latitude / (2 * k)) / torch.tanh(math.pi / (4 * k))

    def extra_repr(self) -> str:
        """Return the initial ``k`` and how it is learned."""
        return f"k={self.start:g}, learnable={self.learnable!r}"


class CustomAngular(Angular):
    """A user-defined g, a callable on cosines, which are limited to ±1. Parameters of a module are registered.

    >>> g = CustomAngular(lambda cos: 1 - 2 * torch.arccos(cos) / torch.pi)
    >>> g(torch.tensor([1.0, 0.5, -1.5]))
    tensor([ 1.0000,  0.3333, -1.0000])
    """

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, cos: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return the result of the callable."""
        return self.function(cos.clamp(-1, 1))


def as_angular(angular: AngularLike) -> Angular:
    """Return an :class:`Angular` for an object of this module or any callable on cosines.

    >>> as_angular(torch.sin)(torch.zeros(1))
    tensor([0.])
    """
    if isinstance(angular, Angular):
        return angular
    if isinstance(angular, type) or not callable(angular):
        raise ValueError(f"angular must be an object of hypersphere.angular or a callable on cosines, got {angular!r}")
    return CustomAngular(angular)
