"""Selection of training and measured samples: subsets, validation samples or classes, class imbalance."""

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
        classes: use only this number of classes, the first ones.
        per_class: largest number of training samples per class.
        imbalance: a subset with fewer samples of some classes, such as ImbalancedSingle (5.5.1 of Liu, 2020).
        rotations: add three classes per class: its samples rotated by 90, 180 and 270 degrees.
        validation: share of the training set that is measured instead of the test set and is not trained on. Tasks that
            measure unseen classes exclude this share of the classes.
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
    """Return training and validation samples, split at random by samples or by classes.

    The split is the same for every seed of a run. The validation samples are None if ``selection.validation`` is 0.
    """
    if selection.validation == 0:
        return train, None
    if by_class:
        parts = identity_split(train.labels, [1 - selection.validation, selection.validation])
        subsets = [OfClasses(train, train.labels[part].unique().tolist()) for part in parts]
        return materialize(subsets[0]), materialize(subsets[1])
    order = Stream(0, SPLIT).permutation(len(train))
    count = round(selection.validation * len(train))
    training, validation = order[count:].sort().values, order[:count].sort().values
    return materialize(Subset(train, training)), materialize(Subset(train, validation))


def select_training_samples(selection: Selection, dataset: Any) -> Any:
    """Return the training samples after the limit per class, the imbalance and the rotations, in this order."""
    if selection.per_class is not None:
        dataset = materialize(Subset(dataset, _find_first_per_class(dataset.labels, selection.per_class)))
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


def _find_first_per_class(labels: Int[Tensor, "n"], count: int) -> Int[Tensor, "_"]:
    order = torch.argsort(labels, stable=True)
    starts = torch.cumsum(torch.bincount(labels), 0) - torch.bincount(labels)
    rank = torch.arange(len(labels)) - starts[labels[order]]
    return order[rank < count].sort().values
