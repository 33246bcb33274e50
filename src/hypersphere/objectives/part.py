"""Which classes the rows of a weight are: all of them, those that one process holds, or those that a step has drawn."""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .comparisons.comparison_loss import Reduce


class Everyone(NamedTuple):
    """The batches of all processes as one, in the order of their ranks.

    Attributes:
        whole: Their features, to be used for what every process computes alike.
        share: The same numbers, to be used for what a process computes for its own classes: the gradients that arrive
            here are added up over the processes.
        labels: Their labels.
    """

    whole: Float[Tensor, "n d"]
    share: Float[Tensor, "n d"]
    labels: Int[Tensor, "n"]


@runtime_checkable
class Processes(Reduce, Protocol):
    """The processes that hold the other classes, and what travels between them.

    What all processes compute alike is *replicated*: it has the same value and the same gradient on each of them. What
    comes of a process's own classes is its *share*: values and gradients that have to be added up.
    """

    def gather(self, features: Tensor, labels: Tensor) -> Everyone:
        """The samples of all processes."""

    def add(self, share: Tensor) -> Tensor:
        """Σ over the processes, replicated; a replicated gradient comes back as it is."""

    def enter(self, replicated: Tensor) -> Tensor:
        """The same tensor for use in a share: gradients are added up on their way back."""

    def own(self, losses: Tensor) -> Tensor:
        """The entries of this process's samples, of one per sample of all processes."""


class Portion(NamedTuple):
    """The classes at hand out of ``num_classes``, one for each of the weight's rows (or each K of them).

    Attributes:
        num_classes: C, of all classes.
        size: How many are at hand.
        first: The number of the first, where they follow each other.
        ids: Their numbers in increasing order, where they do not.
        counts: How many classes each of them stands for in sums over classes; None for one.
        total: How many classes the sums over all parts are taken to be of; None for C.
        processes: Those that hold the other classes; None where nobody else has any.
    """

    num_classes: int
    size: int
    first: int = 0
    ids: Int[Tensor, "c"] | None = None
    counts: Float[Tensor, "c"] | None = None
    total: Float[Tensor, ""] | None = None
    processes: Processes | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all classes are at hand, in order."""
        return self.ids is None and self.processes is None


WHOLE = Portion(0, 0)
"""All classes, however many, in order, where nobody needs to know their number."""


def classes_of(part: Portion, rows: slice) -> slice | Int[Tensor, "c"]:
    """The numbers of the classes at these places of a part."""
    if part.ids is not None:
        return part.ids[rows]
    return slice(rows.start + part.first, rows.stop + part.first) if part.first else rows


def places_of(part: Portion, labels: Int[Tensor, "n"]) -> tuple[Int[Tensor, "n"], Bool[Tensor, "n"] | None]:
    """Where the classes of the labels are in a part, and which of them are there; None for all of them."""
    if part.is_whole:
        return labels, None
    if part.ids is None:
        place = labels - part.first
        return place, (place >= 0) & (place < part.size)
    place = torch.searchsorted(part.ids, labels)
    if not part.size:
        return place, torch.zeros_like(labels, dtype=torch.bool)
    return place, part.ids[place.clamp_max(part.size - 1)] == labels


def added(share: Float[Tensor, "*n"], part: Portion) -> Float[Tensor, "*n"]:
    """The sum over all processes that hold classes, of what each found for its part."""
    return share if part.processes is None else part.processes.add(share)


def entered(replicated: Float[Tensor, "*n"], part: Portion) -> Float[Tensor, "*n"]:
    """What is the same on every process, for use with the classes of a part."""
    return replicated if part.processes is None else part.processes.enter(replicated)
