"""The contract between a large head and the logits of one block of its classes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor


class Block(NamedTuple):
    """What the forward pass leaves for the backward pass of a block of c classes.

    Attributes:
        inverse: 1/‖w‖ of the rows, (c, K), or None where the products are not normalized. Always kept: it is small.
        products: The products of the features with the (normalized) rows, the largest of K; None when it is not kept.
        nearest: Which of the K sub-centres that was; None for K = 1 and when it is not kept.
    """

    inverse: Float[Tensor, "c k"] | None
    products: Float[Tensor, "n c"] | None = None
    nearest: Tensor | None = None


class Inputs(NamedTuple):
    """Everything the logits depend on: rows of the weight (c·K, d), one bias per class, and what the batch brings.

    The first of ``batch`` is (n, d), the features that meet the rows; what follows is known to the implementation only.
    """

    weight: Float[Tensor, "ck d"]
    bias: Float[Tensor, "c"] | None
    batch: tuple[Tensor, ...]


@dataclass
class Gradients:
    """Where the backward pass of every block writes (weight, bias) or adds (batch); None where none is wanted."""

    weight: Tensor | None
    bias: Tensor | None
    batch: list[Tensor | None]

    @classmethod
    def of(cls, inputs: Inputs, needs: Sequence[bool]) -> "Gradients":
        """Room for the gradients of the inputs that need one; every class's rows are written by exactly one block."""
        bias = inputs.bias
        return cls(
            torch.empty_like(inputs.weight) if needs[0] else None,
            torch.empty_like(bias) if bias is not None and needs[1] else None,
            [torch.zeros_like(t) if need else None for t, need in zip(inputs.batch, needs[2:], strict=True)],
        )


@runtime_checkable
class ChunkedLogits(Protocol):
    """The logits of a block of classes, and the way of a gradient back through them.

    An implementation holds settings only, nothing that changes between the passes: what the backward pass needs is in
    the :class:`Block` that :meth:`block` returned. Blocks are independent of each other, so they may be computed in any
    order, again, or on another process; what they share, such as the target's cosine, is in ``inputs.batch``.
    """

    sub_centers: int

    def block(self, part: slice, inputs: Inputs, inverse: Tensor | None = None) -> Block:
        """The products of the classes in ``part``; ``inverse`` are their inverse norms, if they are already known."""

    def logits(self, part: slice, block: Block, inputs: Inputs) -> Float[Tensor, "n c"]:
        """z of the classes in ``part``; it may be the block's ``products`` themselves."""

    def pull(
        self,
        part: slice,
        block: Block,
        inputs: Inputs,
        slope: Callable[[Tensor], Tensor],
        gradients: Gradients,
    ) -> None:
        """Compute z again, ask ``slope`` for ∂L/∂z, and carry it to ``gradients``."""
