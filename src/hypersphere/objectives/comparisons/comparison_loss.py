"""The interface of comparisons: a summary of the other classes' logits that can be computed in chunks, and a loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

State: TypeAlias = "tuple[Tensor, ...]"
"""What has been gathered from some of the classes: tensors of the batch's length."""
Summary: TypeAlias = "tuple[Tensor, ...]"
"""What the loss needs to know of all other classes: tensors of the batch's length."""


@runtime_checkable
class Reduce(Protocol):
    """Combines a tensor with those of the same name that the other processes hold; with one process, the identity.

    >>> def alone(tensor, how):
    ...     return tensor
    >>> binary = hs.objectives.comparisons.Binary()
    >>> binary.reduce((torch.tensor([0.5, 2.0]),), alone)
    (tensor([0.5000, 2.0000]),)
    """

    def __call__(self, tensor: Tensor, how: Literal["max", "sum", "top"]) -> Tensor:
        """Return the entrywise maximum or sum over all processes; for ``"top"``, the k largest of each row of (n, k)."""


class Comparison(nn.Module, ABC):
    r"""The last step from logits to a loss: L_i = loss(t_i, S_i), S_i a summary of z_ij over the other classes j ≠ y_i.

    The classes are looked at in blocks, and the blocks may be on different processes. A state gathers them:
    :meth:`start` is the state of no class and :meth:`add` takes a block in. States combine associatively and in any
    order, which :meth:`reduce` does over processes, and :meth:`finish` makes the summary that all processes then share.
    The gradient goes the same way back: autograd differentiates :meth:`loss` by the summary, on numbers of the batch's
    length, and :meth:`slope` turns that into ∂L/∂z of one block, without any other block being present.

    Every method works on tensors of the batch's length, or (n, c) for a block. None may depend on a learned parameter;
    what is learned belongs to the margin, the angular function, the scale or the bias, which act on the logits.

    Where only a part of the classes was drawn, ``counts`` says how many classes each one of a block stands for: a
    summary made of sums over classes counts its term that many times. ``sums`` is False for a summary that is not.

    >>> softmax, z = hs.objectives.comparisons.CrossEntropy(), torch.tensor([[0.0, 1.0, -1.0]])
    >>> state = softmax.start(z[:, 0])
    >>> for block in z.split(2, dim=1):
    ...     state = softmax.add(state, block)
    >>> torch.allclose(softmax.finish(state)[0], softmax.of_all(z)[0])
    True
    """

    sums: bool = True

    def __init_subclass__(cls, **options: Any):
        """Drop inherited slopes that were written for a loss or summary which this class replaces."""
        super().__init_subclass__(**options)
        for faster, plain in _WRITTEN_FOR.items():
            if faster not in cls.__dict__ and any(name in cls.__dict__ for name in plain):
                setattr(cls, faster, getattr(Comparison, faster))

    @abstractmethod
    def start(self, like: Float[Tensor, "n"]) -> State:
        """Return the state before any class, in the dtype and on the device of ``like``."""

    @abstractmethod
    def add(self, state: State, z: Float[Tensor, "n c"], counts: Float[Tensor, "c"] | None = None) -> State:
        """Add a block of logits, without entries of −∞. It may overwrite ``z`` only outside of autograd."""

    @abstractmethod
    def reduce(self, state: State, reduce: Reduce) -> State:
        """Combine the states of all processes; the result is the same on each."""

    @abstractmethod
    def finish(self, state: State) -> Summary:
        """Return the summary of the classes that were added."""

    def of_all(self, z: Float[Tensor, "n c"]) -> Summary:
        """Return the summary of one block that holds all classes, differentiable by autograd; −∞ is left out."""
        return self.finish(self.add(self.start(z.detach()[:, 0]), z))

    def of_all_but_each(self, z: Float[Tensor, "n c"]) -> tuple[Float[Tensor, "n c"], ...]:
        """Return, for each class, the summary of all other classes, differentiable by autograd; for soft targets.

        This default builds n×c×c logits; a member that can exclude one class from a sum is faster.
        """
        n, c = z.shape
        own = torch.eye(c, dtype=torch.bool, device=z.device)
        others = z.unsqueeze(1).expand(n, c, c).masked_fill(own, -torch.inf).flatten(0, 1)
        return tuple(part.view(n, c) for part in self.of_all(others))

    def of_all_with_slope(self, z: Float[Tensor, "n c"]) -> tuple[Summary, Callable[[Summary], Float[Tensor, "n c"]]]:
        """Return the summary and a function from ∂L/∂S to :meth:`slope`, both without a graph. ``z`` is overwritten.

        A member whose summary and slope have most of their work in common does that work once.
        """
        summary = self.of_all(z)
        return summary, lambda gradients: self.slope(z, summary, gradients)

    @abstractmethod
    def slope(
        self,
        z: Float[Tensor, "n c"],
        summary: Summary,
        gradients: Summary,
        counts: Float[Tensor, "c"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return ∂L/∂z of a block as a new tensor, from ∂L/∂S. The caller sets entries that were left out to 0."""

    @abstractmethod
    def loss(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> Float[Tensor, "n"]:
        """Return the loss of each sample from its own logit and the summary of the others."""

    def loss_with_slopes(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"], Summary]:
        """Return the loss, its derivative by the target's logit and those by the summary, without a graph.

        By default it is autograd through :meth:`loss`; a member that knows the derivatives in closed form is faster.
        """
        leaves = [t.detach().requires_grad_() for t in (target, *summary)]
        with torch.enable_grad():
            loss = self.loss(leaves[0], tuple(leaves[1:]), num_classes)
            found = torch.autograd.grad(loss.sum(), leaves, allow_unused=True)
        by_target, *by_summary = (torch.zeros_like(t) if d is None else d for t, d in zip(leaves, found, strict=True))
        return loss.detach(), by_target, tuple(by_summary)


_WRITTEN_FOR = {
    "loss_with_slopes": ("loss",),
    "of_all_with_slope": ("start", "add", "finish", "of_all", "slope"),
    "of_all_but_each": ("start", "add", "finish", "of_all"),
}
"""The methods that are a faster form of others, and those others."""
