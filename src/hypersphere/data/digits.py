"""The handwritten digits that come with scikit-learn: real data without a download."""

import numpy as np
import torch

from .._extras import require
from .in_memory import InMemory


class Digits(InMemory):
    """1,797 handwritten digits, uint8 (n, 1, 8, 8). Ink is scaled from 0 … 16 to 0 … 255.

    ``train=False`` selects every fifth sample of each class, ``train=True`` the other four fifths, ``train=None`` all samples.
    The split needs no seed, and both parts keep the class balance.

    >>> len(Digits()), len(Digits(train=False)), Digits(train=None).data.shape
    (1442, 355, torch.Size([1797, 1, 8, 8]))
    """

    def __init__(self, train: bool | None = True):
        digits = require("sklearn.datasets").load_digits()
        data = torch.from_numpy(np.rint(digits.images * (255 / 16)).astype(np.uint8))[:, None]
        labels = torch.from_numpy(digits.target).long()
        if train is not None:
            rank = torch.stack([torch.cumsum(labels == c, 0) - 1 for c in range(10)])[labels, torch.arange(len(labels))]
            selected = (rank % 5 == 4) != train
            data, labels = data[selected], labels[selected]
        super().__init__(data, labels, tuple("0123456789"))
