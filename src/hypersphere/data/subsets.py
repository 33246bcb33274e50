"""Parts of a dataset: some samples, some classes, and the class imbalance of the experiments of Liu (2020)."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset

from .streams import IMBALANCE, Stream


class Subset(Dataset[tuple[Tensor, int]]):
    """The samples of ``dataset`` at ``index``, with the attributes that loaders and samplers use (``labels``, ``classes``, ``batch``).

    >>> from hypersphere.data import Digits
    >>> even = Subset(Digits(), torch.arange(0, 1442, 2))
    >>> len(even), len(even.labels), even.batch(torch.tensor([0]))[0].shape
    (721, 721, torch.Size([1, 1, 8, 8]))
    """

    def __init__(self, dataset: Any, index: Int[Tensor, "k"], relabel: Sequence[int] | None = None):
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(dataset):
            raise ValueError(f"index must lie in 0 … {len(dataset) - 1}, got {int(index.min())} … {int(index.max())}")
        self.dataset, self.index = dataset, index
        self.classes: tuple[str, ...] = (
            tuple(dataset.classes) if relabel is None else tuple(dataset.classes[c] for c in relabel)
        )
        number = torch.arange(len(dataset.classes))
        if relabel is not None:
            number = torch.full((len(dataset.classes),), -1)
            number[torch.tensor(relabel)] = torch.arange(len(relabel))
        self.labels: Int[Tensor, "k"] = number[dataset.labels.cpu()[index]]
        if hasattr(dataset, "batch"):  # without it, loaders read item by item
            self.batch = self._batch

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.dataset[int(self.index[index])][0], int(self.labels[index])

    def _batch(self, index: Int[Tensor, "b"]) -> tuple[Tensor, Int[Tensor, "b"]]:
        data = self.dataset.batch(self.index[index])[0]
        return data, self.labels[index].to(data.device)


class OfClasses(Subset):
    """The samples of ``classes`` (numbers), which become 0, 1, … in the order given.

    >>> from hypersphere.data import Digits
    >>> OfClasses(Digits(), [7, 1]).labels.unique().tolist()
    [0, 1]
    """

    def __init__(self, dataset: Any, classes: Sequence[int]):
        if len(set(classes)) != len(classes) or not all(0 <= c < len(dataset.classes) for c in classes):
            raise ValueError(f"classes must be different numbers 0 … {len(dataset.classes) - 1}, got {list(classes)}")
        is_selected = torch.isin(dataset.labels.cpu(), torch.tensor(list(classes), dtype=torch.long))
        super().__init__(dataset, torch.nonzero(is_selected).flatten(), relabel=classes)


class ImbalancedSingle(Subset):
    """Imbalance in a few classes: only some samples of ``classes`` are kept, and all samples of the other classes.

    Liu (2020) keeps 10 % of class 0 of CIFAR-10 (5.5.1, D.1), 10 % of classes 0 – 9 of CIFAR-100 (D.8), and 100 zeros of MNIST.

    Args:
        dataset: The dataset.
        classes: Numbers of the classes whose samples are reduced.
        keep: Fraction of the samples of each of these classes to keep, or their number as an integer.
        seed: Seed of the selection.

    >>> whole = hs.data.InMemory(torch.zeros(80, 1), torch.arange(4).repeat(20), ("cat", "cow", "dog", "hen"))
    >>> ImbalancedSingle(whole, classes=[0], keep=0.1).labels.bincount().tolist()
    [2, 20, 20, 20]
    """

    def __init__(self, dataset: Any, classes: Sequence[int] = (0,), keep: int | float = 0.1, seed: int = 0):
        is_count = isinstance(keep, int)
        if not (keep >= 0 if is_count else 0 <= keep <= 1):
            raise ValueError(f"keep must be a fraction in [0, 1] or a whole number ≥ 0, got {keep!r}")
        sizes = torch.bincount(dataset.labels, minlength=len(dataset.classes)).tolist()
        counts = [(keep if is_count else round(keep * size)) if c in classes else size for c, size in enumerate(sizes)]
        super().__init__(dataset, _draw_per_class(dataset.labels, [int(c) for c in counts], seed))


class ImbalancedMultiple(Subset):
    """Class c keeps ``step``·(c + 1) samples (5.5.1, D.1: step 500 on CIFAR-10; D.8: step 5 on CIFAR-100).

    ``step=None`` is the largest class divided by the number of classes, which gives the numbers of Liu (2020).

    >>> whole = hs.data.InMemory(torch.zeros(80, 1), torch.arange(4).repeat(20), ("cat", "cow", "dog", "hen"))
    >>> ImbalancedMultiple(whole).labels.bincount().tolist()
    [5, 10, 15, 20]
    """

    def __init__(self, dataset: Any, step: int | None = None, seed: int = 0):
        sizes = torch.bincount(dataset.labels, minlength=len(dataset.classes))
        step = int(sizes.max()) // len(sizes) if step is None else step
        if step < 1:
            raise ValueError(f"step must be an integer ≥ 1, got {step}")
        super().__init__(dataset, _draw_per_class(dataset.labels, [step * (c + 1) for c in range(len(sizes))], seed))


def _draw_per_class(labels: Int[Tensor, "n"], counts: Sequence[int], seed: int) -> Int[Tensor, "_"]:
    """Return the ascending indices of ``counts[c]`` random samples of each class c; a smaller class keeps all samples."""
    kept = []
    for c, count in enumerate(counts):
        members = torch.nonzero(labels == c).flatten().cpu()
        kept.append(members[Stream(seed, IMBALANCE, c).permutation(len(members))[:count]])
    return torch.cat(kept).sort().values
