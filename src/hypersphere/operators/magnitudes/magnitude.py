r"""The base class of magnitudes, and magnitudes from a user's function."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

from ...geometry.fast_norms import MIN_NORM, bounded_inverse, normalize_rows

MagnitudeLike: TypeAlias = nn.Module | Callable[..., Tensor]
Weighting: TypeAlias = Literal["linear", "tanh_product", "product_of_tanh"] | None


class Magnitude(nn.Module, ABC):
    r"""h(‖w‖, ‖x‖). A subclass defines h as a function of ‖x‖ by :meth:`radial`, and h/‖x‖ by :meth:`gain` if it can.

    ``weighted`` says how h depends on ‖w‖ (4.3.5): not at all if None, as a factor if ``"linear"``. ``dim`` is the axis
    of the neurons, for magnitudes with one parameter per neuron.

    >>> class Root(Magnitude):
    ...     def radial(self, x_norm, dim=-1):
    ...         return x_norm.sqrt()
    >>> Root(weighted="linear")(torch.tensor(2.0), torch.tensor([4.0, 9.0]))
    tensor([4., 6.])
    """

    weightings: ClassVar[tuple[Weighting, ...]] = (None, "linear")
    # Whether h is a multiple of ‖x‖. With the cosine the layer is then an inner product, and no norm is computed.
    homogeneous: ClassVar[bool] = False
    weighted: Weighting

    def __init__(self, weighted: Weighting = None):
        super().__init__()
        if weighted not in self.weightings:
            accepted = ", ".join(repr(w) for w in self.weightings)
            raise ValueError(f"weighted must be one of {accepted} for {type(self).__name__}, got {weighted!r}")
        self.weighted = weighted

    @abstractmethod
    def radial(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return h as a function of ‖x‖, without ‖w‖."""

    def gain(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return h/‖x‖, the factor of the inner product when the angular function is the cosine."""
        return self.radial(x_norm, dim) * bounded_inverse(x_norm)

    def forward(
        self, w_norm: Float[Tensor, "..."], x_norm: Float[Tensor, "..."], dim: int = -1
    ) -> Float[Tensor, "..."]:
        """Return h(‖w‖, ‖x‖); the two norms broadcast."""
        h = self.radial(x_norm, dim)
        return h if self.weighted is None else h * w_norm

    def kernel(self, weight: Float[Tensor, "neurons *rest"]) -> Float[Tensor, "neurons *rest"]:
        """Return the weight that multiplies the input when the angular function is the cosine: ŵ, or w if ‖w‖ is part of h."""
        return normalize_rows(weight)[0] if self.weighted is None else weight

    def ratio(self, w_norm: Float[Tensor, "..."], x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return the factor h/‖x‖ of the product of :meth:`kernel` and the input."""
        return self.gain(x_norm, dim)

    @property
    def uses_weight_norm(self) -> bool:
        """Whether ‖w‖ changes the output."""
        return self.weighted is not None

    def for_neurons(self, neurons: int) -> "Magnitude":
        """Return the object for a layer of this many neurons: a copy if each layer learns its own, otherwise self."""
        return self

    def extra_repr(self) -> str:
        """Return the constants and the weighting; a radius is printed as a submodule."""
        constants = [f"{name}={getattr(self, name):g}" for name in ("alpha", "beta") if hasattr(self, name)]
        return ", ".join([*constants, *([] if self.weighted is None else [f"weighted={self.weighted!r}"])])


class CustomMagnitude(Magnitude):
    """A user's own h: a callable on ‖x‖, or on ‖w‖ and ‖x‖ in the order of h(‖w‖, ‖x‖). The parameters of a module are learned.

    Smaller ‖x‖ are raised to ``MIN_NORM`` first, because the slope of a root or a logarithm at 0 is infinite.

    >>> h = CustomMagnitude(lambda w_norm, x_norm: w_norm * x_norm.sqrt())
    >>> h(torch.tensor(2.0), torch.tensor([4.0, 9.0])), h.uses_weight_norm
    (tensor([4., 6.]), True)
    """

    def __init__(self, function: Callable[..., Tensor]):
        super().__init__()
        self.function, self.takes_weight_norm = function, _count_norms(function) == 2

    @property
    def uses_weight_norm(self) -> bool:
        """Whether the callable takes ‖w‖."""
        return self.takes_weight_norm

    def radial(self, x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return the value of the callable at ‖x‖."""
        return self.function(x_norm.clamp_min(MIN_NORM))

    def forward(
        self, w_norm: Float[Tensor, "..."], x_norm: Float[Tensor, "..."], dim: int = -1
    ) -> Float[Tensor, "..."]:
        """Return the value of the callable at the norms it takes."""
        return self.function(w_norm, x_norm.clamp_min(MIN_NORM)) if self.takes_weight_norm else self.radial(x_norm, dim)

    def ratio(self, w_norm: Float[Tensor, "..."], x_norm: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return h/‖x‖."""
        return self.forward(w_norm, x_norm, dim) * bounded_inverse(x_norm)


def as_magnitude(magnitude: MagnitudeLike) -> Magnitude:
    """Return a :class:`Magnitude` for an object of ``hypersphere.magnitudes`` or a callable.

    >>> as_magnitude(torch.sqrt)(torch.tensor(5.0), torch.tensor([4.0, 9.0]))
    tensor([2., 3.])
    >>> as_magnitude(lambda w_norm, x_norm: w_norm * x_norm.sqrt())(torch.tensor(5.0), torch.tensor([4.0, 9.0]))
    tensor([10., 15.])
    """
    if isinstance(magnitude, Magnitude):
        return magnitude
    if isinstance(magnitude, type) or not callable(magnitude):
        raise ValueError(
            f"magnitude must be an object of hypersphere.magnitudes or a callable on norms, got {magnitude!r}"
        )
    return CustomMagnitude(magnitude)


def check_positive(name: str, value: float) -> float:
    """Return ``value`` if it is a finite number > 0; raise a ValueError otherwise."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a number > 0, got {value!r}")
    return float(value)


def check_not_negative(name: str, value: float) -> float:
    """Return ``value`` if it is a finite number ≥ 0; raise a ValueError otherwise."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a number ≥ 0, got {value!r}")
    return float(value)


def _count_norms(function: Callable[..., Tensor]) -> int:
    """Return the number of norms that a callable takes: 1 for built-in functions of torch, which have no signature."""
    target = function.forward if isinstance(function, nn.Module) else function
    try:
        parameters = inspect.signature(target).parameters.values()
    except ValueError:
        return 1
    required = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    if len(required) not in (1, 2):
        raise ValueError(
            f"magnitude must take ‖x‖, or ‖w‖ and ‖x‖, got a callable of {len(required)} arguments: {function!r}"
        )
    return len(required)
