"""Parts of a dataset: chosen samples, chosen classes, and the class imbalance of the experiments of Liu (2020)."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset

from .streams import IMBALANCE, Stream


class Subset(Dataset[tuple[Tensor, int]]):
    """The samples of ``dataset`` at ``index``; keeps what loaders and samplers use (``labels``, ``classes``, ``batch``).

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
        if hasattr(dataset, "batch"):  # a dataset that decodes one file at a time has none, and its subset neither
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
        wanted = torch.isin(dataset.labels.cpu(), torch.tensor(list(classes), dtype=torch.long))
        super().__init__(dataset, torch.nonzero(wanted).flatten(), relabel=classes)


class ImbalancedSingle(Subset):
    """Imbalance: a few classes keep some of their samples (5.5.1; D.1: class 0 of CIFAR-10 keeps 10 %; D.8: classes 0 – 9 of CIFAR-100).

    ``keep`` is a fraction of each class's samples, or an integer count (the MNIST of Liu, 2020, keeps 100 zeros). All others keep theirs.

    >>> whole = hs.data.InMemory(torch.zeros(80, 1), torch.arange(4).repeat(20), ("cat", "cow", "dog", "hen"))
    >>> ImbalancedSingle(whole, classes=[0], keep=0.1).labels.bincount().tolist()
    [2, 20, 20, 20]
    """

    def __init__(self, dataset: Any, classes: Sequence[int] = (0,), keep: int | float = 0.1, seed: int = 0):
        whole = isinstance(keep, int)
        if not (keep >= 0 if whole else 0 <= keep <= 1):
            raise ValueError(f"keep must be a fraction in [0, 1] or a whole number ≥ 0, got {keep!r}")
        sizes = torch.bincount(dataset.labels, minlength=len(dataset.classes)).tolist()
        counts = [(keep if whole else round(keep * size)) if c in classes else size for c, size in enumerate(sizes)]
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
        mine = torch.nonzero(labels == c).flatten().cpu()
        kept.append(mine[Stream(seed, IMBALANCE, c).permutation(len(mine))[:count]])
    return torch.cat(kept).sort().values
