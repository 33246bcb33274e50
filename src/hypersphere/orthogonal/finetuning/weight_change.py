"""The interface of all methods of fine-tuning: the change of a frozen weight that one task learns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

if TYPE_CHECKING:
    from .rotation import Rotation
    from .tuning_method import TuningMethod


class WeightLayout(NamedTuple):
    """How the neurons of a weight lie.

    Attributes:
        neurons: the number of rows.
        numbers: the length of each.
        parts: sets of neurons that are tuned apart, 3 for the fused query, key and value of an attention.
        groups: sets of neurons that see different inputs, those of a grouped convolution.
    """

    neurons: int
    numbers: int
    parts: int = 1
    groups: int = 1


@dataclass(frozen=True)
class MethodKind:
    """An entry of the table of methods: the class that learns, its options, and what distinguishes it from others.

    Attributes:
        change: the class of the learned change.
        defaults: the options that the method has beside ``block``, with their defaults.
        rotation: the kind of rotation, for methods that turn neurons.
        two_sided: whether the rows are turned among each other as well (POET).
    """

    change: "type[WeightChange]"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    rotation: "type[Rotation] | None" = None
    two_sided: bool = False


class WeightChange(nn.Module, ABC):
    """A learned map from the frozen rows of a weight to the rows that act; at the start it changes nothing."""

    redrawable = False  # whether :func:`redraw` multiplies the change in and starts a new one

    @classmethod
    @abstractmethod
    def create(
        cls,
        method: "TuningMethod",
        layout: WeightLayout,
        rows: Tensor | None,
        like: Tensor,
        generator: torch.Generator | None,
    ) -> "WeightChange":
        """Return the change of a method for one weight.

        Args:
            method: the method and its options.
            layout: how the neurons lie.
            rows: the frozen rows, or None for a quantized weight.
            like: a tensor whose device and precision, float32 at least, the parameters have.
            generator: draws what is random.
        """

    @classmethod
    def explain_misfit(cls, method: "TuningMethod", numbers: int) -> str | None:
        """Return why neurons of this length cannot be tuned, or None."""
        return None

    @classmethod
    def explain_quantized(cls, method: "TuningMethod") -> str | None:
        """Return why a quantized weight cannot be tuned, or None if :meth:`compute_around` works."""
        return None

    @classmethod
    @abstractmethod
    def describe(cls, method: "TuningMethod", numbers: int) -> str:
        """Describe in a few words what neurons of this length get."""

    @property
    @abstractmethod
    def cost(self) -> float:
        """The products for each sample that :meth:`compute_outputs` adds; infinite if the weight must be formed."""

    @abstractmethod
    def forward(self, rows: Float[Tensor, "parts m n"]) -> Float[Tensor, "parts m n"]:
        """Return the rows that act, in the precision of ``rows``, float32 at least."""

    def compute_outputs(
        self, x: Float[Tensor, "*batch n"], rows: Float[Tensor, "m n"], bias: Tensor | None
    ) -> Float[Tensor, "*batch m"]:
        """Return the outputs of a linear layer without forming its weight."""
        return self.compute_around(x, lambda inputs: nn.functional.linear(inputs, rows, bias), bias)

    def compute_around(self, x: Tensor, base: Callable[[Tensor], Tensor], bias: Tensor | None) -> Tensor:
        """Return the outputs of a linear layer whose frozen weight is known by its outputs alone."""
        raise TypeError(f"{type(self).__name__} needs the weight itself")

    @abstractmethod
    def reset(self, generator: torch.Generator | None = None) -> None:
        """Go back to no change; what is random about the method is drawn anew."""

    @abstractmethod
    def rewind(self, t: float) -> None:
        """Move the change to the share ``t`` of the way from no change."""

    @abstractmethod
    def count(self, freedom: bool) -> int:
        """Count the learned numbers, or the dimension of the set that the change moves in."""

    def error(self) -> float | None:
        """Return the largest entry of |RᵀR − I|, or None if the change is no rotation."""
        return None

    def list_rate_factors(self) -> Iterator[tuple[nn.Parameter, float]]:
        """Yield each parameter with the factor of its learning rate: 1/√(entries of a generator), 1 where there is none."""
        for parameter in self.parameters():
            yield parameter, 1.0

    def get_generators(self) -> Tensor | None:
        """Return the generators if the change is one block-diagonal Cayley transform of the inputs, otherwise None."""
        return None
