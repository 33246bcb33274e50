"""The interface of comparisons: a summary of the other classes' logits that can be computed in chunks, and a loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

State: TypeAlias = "tuple[Tensor, ...]"
"""An intermediate result for some of the classes: tensors of the batch's length."""
Summary: TypeAlias = "tuple[Tensor, ...]"
"""What the loss needs to know about all other classes: tensors of the batch's length."""


@runtime_checkable
class Reduce(Protocol):
    """Combines a tensor with the corresponding tensors of the other processes. With one process it is the identity.

    >>> def alone(tensor, how):
    ...     return tensor
    >>> binary = hs.objectives.comparisons.Binary()
    >>> binary.reduce((torch.tensor([0.5, 2.0]),), alone)
    (tensor([0.5000, 2.0000]),)
    """

    def __call__(self, tensor: Tensor, how: Literal["max", "sum", "top"]) -> Tensor:
        """Return the entrywise maximum or sum over all processes; for ``"top"``, the k largest of each row of (n, k)."""


class Comparison(nn.Module, ABC):
    r"""The last step from logits to a loss: L_i = loss(t_i, S_i), where S_i summarizes z_ij over the other classes j ≠ y_i.

    The summary is computed from blocks of classes, which may be on different processes. :meth:`start` returns the state of
    no classes, and :meth:`add` adds a block to a state. :meth:`reduce` combines the states of all processes, in any order, and
    :meth:`finish` computes the summary, which is the same on all processes. In the backward pass, autograd differentiates
    :meth:`loss` by the summary, which consists of tensors of the batch's length, and :meth:`slope` computes ∂L/∂z of one block
    from that, without the other blocks.

    All arguments have the batch's length, or (n, c) for a block. A comparison has no learned parameters: these belong to the
    margin, the angular function, the scale or the bias, which act on the logits.

    If only some of the classes were sampled, ``counts`` is the number of classes that each class of a block stands for. A summary
    that consists of sums over classes multiplies each term by it. ``sums`` is False for any other summary.

    >>> softmax, z = hs.objectives.comparisons.CrossEntropy(), torch.tensor([[0.0, 1.0, -1.0]])
    >>> state = softmax.start(z[:, 0])
    >>> for block in z.split(2, dim=1):
    ...     state = softmax.add(state, block)
    >>> torch.allclose(softmax.finish(state)[0], softmax.of_all(z)[0])
    True
    """

    sums: bool = True

    def __init_subclass__(cls, **options: Any):
        """Remove inherited slopes that belong to a loss or summary which this class overrides."""
        super().__init_subclass__(**options)
        for faster, plain in _OVERRIDDEN_WITH.items():
            if faster not in cls.__dict__ and any(name in cls.__dict__ for name in plain):
                setattr(cls, faster, getattr(Comparison, faster))

    @abstractmethod
    def start(self, like: Float[Tensor, "n"]) -> State:
        """Return the state of no classes, in the dtype and on the device of ``like``."""

    @abstractmethod
    def add(self, state: State, z: Float[Tensor, "n c"], counts: Float[Tensor, "c"] | None = None) -> State:
        """Add a block of logits. Entries of −∞ do not count. ``z`` may be overwritten only outside of autograd."""

    @abstractmethod
    def reduce(self, state: State, reduce: Reduce) -> State:
        """Combine the states of all processes. The result is the same on each process."""

    @abstractmethod
    def finish(self, state: State) -> Summary:
        """Return the summary of the classes that were added."""

    def of_all(self, z: Float[Tensor, "n c"]) -> Summary:
        """Return the summary of one block with all classes, differentiable by autograd. Entries of −∞ do not count."""
        return self.finish(self.add(self.start(z.detach()[:, 0]), z))

    def of_all_but_each(self, z: Float[Tensor, "n c"]) -> tuple[Float[Tensor, "n c"], ...]:
        """Return, for each class, the summary of all other classes, differentiable by autograd. Soft targets need it.

        This default builds n×c×c logits. Override it if one class can be excluded from the summary at less cost.
        """
        n, c = z.shape
        own = torch.eye(c, dtype=torch.bool, device=z.device)
        others = z.unsqueeze(1).expand(n, c, c).masked_fill(own, -torch.inf).flatten(0, 1)
        return tuple(part.view(n, c) for part in self.of_all(others))

    def of_all_with_slope(self, z: Float[Tensor, "n c"]) -> tuple[Summary, Callable[[Summary], Float[Tensor, "n c"]]]:
        """Return the summary and a function from ∂L/∂S to :meth:`slope`, both without a graph. ``z`` is overwritten.

        Override it if the summary and the slope have intermediate results in common.
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
        """Return ∂L/∂z of a block as a new tensor, from ∂L/∂S. The caller sets the entries of −∞ to 0."""

    @abstractmethod
    def loss(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> Float[Tensor, "n"]:
        """Return the loss of each sample from the target's logit and the summary of the other classes."""

    def loss_with_slopes(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"], Summary]:
        """Return the loss and its derivatives by the target's logit and by the summary, without a graph.

        This default differentiates :meth:`loss` by autograd. Override it if the derivatives have a closed form.
        """
        leaves = [t.detach().requires_grad_() for t in (target, *summary)]
        with torch.enable_grad():
            loss = self.loss(leaves[0], tuple(leaves[1:]), num_classes)
            slopes = torch.autograd.grad(loss.sum(), leaves, allow_unused=True)
        by_target, *by_summary = (torch.zeros_like(t) if d is None else d for t, d in zip(leaves, slopes, strict=True))
        return loss.detach(), by_target, tuple(by_summary)


_OVERRIDDEN_WITH = {
    "loss_with_slopes": ("loss",),
    "of_all_with_slope": ("start", "add", "finish", "of_all", "slope"),
    "of_all_but_each": ("start", "add", "finish", "of_all"),
}
"""For each optional method, the methods whose results it must agree with."""
