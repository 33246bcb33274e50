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
    """The arrangement of the neurons in a weight.

    Attributes:
        neurons: Number of neurons.
        numbers: Length of each neuron.
        parts: Number of sets of neurons that are tuned separately: 3 for the fused query, key and value of an attention.
        groups: Number of sets of neurons that have different inputs, as in a grouped convolution.
    """

    neurons: int
    numbers: int
    parts: int = 1
    groups: int = 1


@dataclass(frozen=True)
class MethodKind:
    """An entry of the table of methods.

    Attributes:
        change: The class of the learned change.
        defaults: The options of the method except ``block``, with their defaults.
        rotation: The class of the rotation, for methods that rotate neurons.
        two_sided: Whether the neurons are also mixed with each other by a rotation (POET).
    """

    change: "type[WeightChange]"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    rotation: "type[Rotation] | None" = None
    two_sided: bool = False


class WeightChange(nn.Module, ABC):
    """A learned map from the frozen rows of a weight to the effective rows. Initially it is the identity.

    Args:
        method: The method and its options.
        layout: The arrangement of the neurons.
        rows: The frozen rows, or None for a quantized weight.
        like: A tensor with the device of the parameters; their dtype is that of ``like``, but at least float32.
        generator: Random generator of the initialization.
    """

    redrawable = False  # whether :func:`redraw` multiplies the change into the weight and starts a new one

    @abstractmethod
    def __init__(
        self,
        method: "TuningMethod",
        layout: WeightLayout,
        rows: Tensor | None,
        like: Tensor,
        generator: torch.Generator | None = None,
    ):
        super().__init__()

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
        """Describe the change of neurons of this length in a few words."""

    @property
    @abstractmethod
    def cost(self) -> float:
        """The number of products per sample that :meth:`compute_outputs` adds; infinite if the weight must be formed."""

    @abstractmethod
    def forward(self, rows: Float[Tensor, "parts m n"]) -> Float[Tensor, "parts m n"]:
        """Return the effective rows, in the dtype of ``rows``, which is float32 at least."""

    def compute_outputs(
        self, x: Float[Tensor, "*batch n"], rows: Float[Tensor, "m n"], bias: Tensor | None
    ) -> Float[Tensor, "*batch m"]:
        """Return the outputs of a linear layer without forming its effective weight."""
        return self.compute_around(x, lambda inputs: nn.functional.linear(inputs, rows, bias), bias)

    def compute_around(self, x: Tensor, base: Callable[[Tensor], Tensor], bias: Tensor | None) -> Tensor:
        """Return the outputs of a linear layer from ``base``, the frozen layer as a function, without access to its weight."""
        raise TypeError(f"{type(self).__name__} needs the weight itself")

    @abstractmethod
    def reset(self, generator: torch.Generator | None = None) -> None:
        """Return to the identity and draw the random parts of the method again."""

    @abstractmethod
    def rewind(self, t: float) -> None:
        """Scale the change by ``t``: 0 is the identity, 1 the current change."""

    @abstractmethod
    def count(self, freedom: bool) -> int:
        """Count the learned numbers, or return the dimension of the set of possible changes."""

    def error(self) -> float | None:
        """Return the largest entry of |RᵀR − I|, or None if the change is not a rotation."""
        return None

    def list_rate_factors(self) -> Iterator[tuple[nn.Parameter, float]]:
        """Yield each parameter with the factor of its learning rate: 1/√(entries) for a generator, otherwise 1."""
        for parameter in self.parameters():
            yield parameter, 1.0

    def get_generators(self) -> Tensor | None:
        """Return the generators if the change is a single block-diagonal Cayley transform of the inputs, otherwise None."""
        return None
