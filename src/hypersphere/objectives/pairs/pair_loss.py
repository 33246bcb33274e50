"""The base class of losses over pairs: a module that takes features and labels, in one process or several."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from typing_extensions import TypedDict, Unpack

from ...collectives import gather_rows_with_gradient, is_distributed, sum_over_processes
from .pair_blocks import COSINE, Chunk, Similarity, check_chunk, make_zero_loss, sum_over_pairs


class PairOptions(TypedDict, total=False):
    """Options of every loss over pairs, with their defaults in :class:`PairLoss`."""

    chunk: Chunk
    gather: bool
    ignore_index: int


class PairSettings:
    """Options that losses over pairs and losses with proxies share, and the communication between processes."""

    chunk: Chunk
    gather: bool
    ignore_index: int

    def set_options(self, options: PairOptions) -> None:
        """Store the options; missing options get their defaults."""
        self.chunk = check_chunk(options.get("chunk", "auto"))
        self.gather, self.ignore_index = options.get("gather", True), options.get("ignore_index", -100)

    @property
    def spans_processes(self) -> bool:
        """Whether the loss covers the samples of several processes."""
        return self.gather and is_distributed()

    def gather_samples(self, x: Tensor, labels: Tensor) -> tuple[Float[Tensor, "m d"], Int[Tensor, "m"], int]:
        """Return samples, their labels, and the index of the first sample of this process.

        The samples are those of all processes if the loss spans them, otherwise those of this process.
        """
        if not self.spans_processes:
            return x, labels, 0
        rows, start = gather_rows_with_gradient(x)
        return rows, gather_rows_with_gradient(labels).rows, start

    def sum_processes(self, totals: Float[Tensor, "terms"]) -> Float[Tensor, "terms"]:
        """Return the totals summed over processes if the loss spans them, otherwise the totals of this process."""
        return sum_over_processes(totals) if self.spans_processes else totals

    def extra_repr(self) -> str:
        """Return the numbers that define the loss."""
        hidden = {"chunk", "gather", "ignore_index", "training"}
        return ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_") and k not in hidden)


class PairLoss(PairSettings, nn.Module, ABC):
    """A loss over the cosines of pairs. Pairs with the same label are positive, all others are negative.

    ``loss(features, labels)`` compares the samples of a batch with each other, never with themselves.
    ``loss(features, labels, references, reference_labels)`` compares them with other samples: a second modality, a
    memory of earlier batches, or class proxies. The lengths of the features do not matter. Features in half precision are
    converted to float32, also under autocast.

    Args:
        chunk: Number of rows of the cosine matrix to compute at a time. Each block of rows is computed again in the backward
            pass. ``"auto"`` computes up to 2²² cosines at once and uses blocks for more. None computes all at once.
        gather: Whether the loss covers the batches of all processes if torch.distributed is running. The loss is then the
            same on every process. The mean of the gradients over the processes, which DistributedDataParallel computes, equals
            the gradient in one process with all samples.
        ignore_index: Label of samples to ignore.

    >>> loss, x = hs.objectives.Alignment(), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> loss(x, torch.tensor([0, 0]))
    tensor(2.)
    >>> loss(x, torch.tensor([0, 1]), references=torch.eye(2), reference_labels=torch.tensor([0, 1]))
    tensor(0.)
    """

    needs_labels: bool = True

    def __init__(self, **options: Unpack[PairOptions]):
        super().__init__()
        self.set_options(options)

    def forward(
        self,
        features: Float[Tensor, "n d"],
        labels: Int[Tensor, "n"] | None = None,
        references: Float[Tensor, "m d"] | None = None,
        reference_labels: Int[Tensor, "m"] | None = None,
    ) -> Float[Tensor, ""]:
        """Compute the loss of a batch in float32 or float64. Without pairs, the loss and its gradients are 0."""
        with torch.autocast(features.device.type, enabled=False):
            x, y = self.select_samples(features, labels, "features", "labels")
            if references is None:
                if reference_labels is not None:
                    raise ValueError("reference_labels were given without references")
                gathered, gathered_labels, start = self.gather_samples(x, y)
                own = torch.arange(start, start + len(x), device=x.device)
                return self.compare(x, y, gathered, gathered_labels, own)
            others, other_labels = self.select_samples(references, reference_labels, "references", "reference_labels")
            if x.shape[1] != others.shape[1]:
                raise ValueError(
                    f"features and references must agree in dimension, got {x.shape[1]} and {others.shape[1]}"
                )
            dtype = torch.promote_types(x.dtype, others.dtype)
            gathered, gathered_labels, _ = self.gather_samples(others.to(dtype), other_labels)
            return self.compare(x.to(dtype), y, gathered, gathered_labels, None)

    @abstractmethod
    def compare(
        self,
        x: Float[Tensor, "n d"],
        labels: Int[Tensor, "n"],
        references: Float[Tensor, "m d"],
        reference_labels: Int[Tensor, "m"],
        own: Int[Tensor, "n"] | None,
    ) -> Float[Tensor, ""]:
        """Compute the loss of samples compared with references.

        With ``gather``, each process passes its own samples and the references of all processes, and the result is the loss of
        the samples of all processes. ``own`` is the index of each sample among the references, or None if the references are
        other samples.
        """

    def select_samples(
        self, features: Tensor, labels: Tensor | None, name: str, labels_name: str
    ) -> tuple[Float[Tensor, "n d"], Int[Tensor, "n"]]:
        """Check features and labels. Return them without ignored samples; half precision becomes float32."""
        if features.ndim != 2 or not features.is_floating_point():
            raise ValueError(
                f"{name} must be floating-point of shape (n, d), got {features.dtype} of shape {tuple(features.shape)}"
            )
        features = features.to(torch.promote_types(features.dtype, torch.float32))
        if labels is None and not self.needs_labels:
            return features, torch.zeros(len(features), dtype=torch.long, device=features.device)
        if labels is None or labels.shape != features.shape[:1] or labels.is_floating_point():
            given = "None" if labels is None else f"{labels.dtype} of shape {tuple(labels.shape)}"
            raise ValueError(f"{labels_name} must be {len(features)} integers, one for each of {name}, got {given}")
        labels = labels.long()
        counts = labels != self.ignore_index
        return (features, labels) if bool(counts.all()) else (features[counts], labels[counts])


class SummedPairLoss(PairLoss):
    """A loss that is computed from a few sums over the rows of the cosine matrix. Most losses over pairs have this form.

    A new loss defines :meth:`terms`, which computes the sums over some of the rows. If the loss is not the first sum divided by
    the second, it also defines :meth:`combine`.

    >>> class NegativeCosine(SummedPairLoss):
    ...     def terms(self, cos, positive, negative):
    ...         return torch.stack([cos[negative].sum(), negative.sum().to(cos)])
    >>> NegativeCosine()(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([0, 1]))
    tensor(0.6000)
    """

    similarity: Similarity = COSINE
    """The similarity measure. The argument ``cos`` of :meth:`terms` contains its values."""

    @abstractmethod
    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return sums over the given rows and the counts to divide them by. The masks exclude pairs of a sample with itself."""

    def combine(self, totals: Float[Tensor, "terms"]) -> Float[Tensor, ""]:
        """Return the loss from the sums over all rows: by default the first divided by the second, or 0 for a count of 0."""
        return totals[0] / totals[1].clamp_min(1)

    def compare(
        self,
        x: Float[Tensor, "n d"],
        labels: Int[Tensor, "n"],
        references: Float[Tensor, "m d"],
        reference_labels: Int[Tensor, "m"],
        own: Int[Tensor, "n"] | None,
    ) -> Float[Tensor, ""]:
        """Compute the loss in blocks of rows. Without references it is 0."""
        if not len(references):
            return make_zero_loss(x, references, *self.parameters())
        totals = sum_over_pairs(self.terms, x, labels, references, reference_labels, own, self.chunk, self.similarity)
        return self.combine(self.sum_processes(totals))


def check_number(name: str, value: float, *, low: float, inclusive: bool = False) -> float:
    """Return the number if it is finite and above ``low`` (or equal to it); raise a ValueError otherwise."""
    if (value >= low if inclusive else value > low) and value < float("inf"):
        return value
    raise ValueError(f"{name} must be a finite number {'≥' if inclusive else '>'} {low:g}, got {value!r}")
