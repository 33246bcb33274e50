"""Selection of training and measured samples: subsets, held-out samples or classes, class imbalance."""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from jaxtyping import Int
from torch import Tensor

from ..config import Call, Kind
from ..data import InMemory, OfClasses, Rotations, Subset, identity_split
from ..data.streams import SPLIT, Stream

SubsetCall = Annotated[Call, Kind(Subset, ("hypersphere.data",), given=("dataset",))]


@dataclass(frozen=True)
class Selection:
    """Parts of a dataset.

    Args:
        classes: number of classes to use, the first ones.
        per_class: largest number of training samples per class.
        imbalance: a subset that leaves some classes fewer samples, such as ImbalancedSingle (5.5.1 of Liu, 2020).
        rotations: every class turned by 90, 180 and 270 degrees is three more classes.
        validation: this part of the training set, or of its classes where unseen classes are measured, is held out and
            measured instead of the test set.
        measured: largest number of measured samples, drawn at random, the same for every run.

    >>> from hypersphere.training import Config, Selection, build_task, call
    >>> few = Selection(classes=3, per_class=20, validation=0.1)
    >>> task = build_task(Config(samples=few, backbone=call(hs.models.mlp, width=0.05)))
    >>> task.train_samples.labels.bincount().tolist()
    [20, 20, 20]
    """

    classes: int | None = None
    per_class: int | None = None
    imbalance: SubsetCall | None = None
    rotations: bool = False
    validation: float = 0.0
    measured: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.validation < 1:
            raise ValueError(f"samples.validation must lie in [0, 1), got {self.validation}")
        for name, least in (("classes", 2), ("per_class", 1), ("measured", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"samples.{name} must be an integer ≥ {least} or none, got {value}")


def select_first_classes(selection: Selection, dataset: Any) -> Any:
    """Return the samples of the first classes, or all samples without such a limit."""
    if selection.classes is None:
        return dataset
    if selection.classes > len(dataset.classes):
        raise ValueError(f"samples.classes must lie in 2 … {len(dataset.classes)}, got {selection.classes}")
    return materialize(OfClasses(dataset, range(selection.classes)))


def hold_out(selection: Selection, train: Any, by_class: bool = False) -> tuple[Any, Any]:
    """Return ``(training, validation)``, split at random by samples or by classes; the same split for every seed of a run.

    The second is None if nothing is held out.
    """
    if selection.validation == 0:
        return train, None
    if by_class:
        kept, held = identity_split(train.labels, [1 - selection.validation, selection.validation])
        parts = [OfClasses(train, train.labels[part].unique().tolist()) for part in (kept, held)]
        return materialize(parts[0]), materialize(parts[1])
    order = Stream(0, SPLIT).permutation(len(train))
    count = round(selection.validation * len(train))
    kept, held = order[count:].sort().values, order[:count].sort().values
    return materialize(Subset(train, kept)), materialize(Subset(train, held))


def select_training_samples(selection: Selection, dataset: Any) -> Any:
    """Return the training samples after limiting samples per class, imbalance, and rotated classes, in this order."""
    if selection.per_class is not None:
        dataset = materialize(Subset(dataset, _first_of_each(dataset.labels, selection.per_class)))
    if selection.imbalance is not None:
        dataset = materialize(selection.imbalance.build(dataset=dataset))
    return Rotations(dataset) if selection.rotations else dataset


def limit_measured_samples(selection: Selection, dataset: Any) -> Any:
    """Return at most ``measured`` samples, the same for every seed of a run."""
    if selection.measured is None or selection.measured >= len(dataset):
        return dataset
    order = Stream(0, SPLIT, 1).permutation(len(dataset))
    return materialize(Subset(dataset, order[: selection.measured].sort().values))


def materialize(subset: Any) -> Any:
    """Copy the samples of a subset if they are in memory; a subset of files is returned unchanged."""
    if not hasattr(subset, "batch") or not isinstance(subset.dataset, InMemory):
        return subset
    data, labels = subset.batch(torch.arange(len(subset)))
    return InMemory(data, labels, subset.classes)


def _first_of_each(labels: Int[Tensor, "n"], count: int) -> Int[Tensor, "_"]:
    order = torch.argsort(labels, stable=True)
    starts = torch.cumsum(torch.bincount(labels), 0) - torch.bincount(labels)
    rank = torch.arange(len(labels)) - starts[labels[order]]
    return order[rank < count].sort().values
