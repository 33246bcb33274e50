"""A separate margin for each class."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..margins.margin import Context, Strength


class ByClass(Strength):
    """m of a sample depends on its class: ``values`` has one number per class. They are saved in the state_dict.

    >>> head = hs.ArcFace(8, 3, m=ByClass([0.2, 0.5, 0.3]))
    >>> head.margin.m(hs.objectives.margins.Context(labels=torch.tensor([2, 0])))
    tensor([0.3000, 0.2000])
    """

    values: Tensor
    constant = True

    def __init__(self, values: Sequence[float]):
        super().__init__()
        numbers = torch.as_tensor(values, dtype=torch.float32)
        if numbers.ndim != 1 or len(numbers) < 1 or not torch.isfinite(numbers).all():
            raise ValueError(f"values must be finite numbers, one per class, got {values!r}")
        self.register_buffer("values", numbers)
        self.num_classes = len(numbers)
        self.least, self.most = numbers.min().item(), numbers.max().item()

    def forward(self, context: Context) -> Float[Tensor, "..."]:
        """Return values[labels], or the largest value if there are no labels."""
        return self.values.max() if context.labels is None else self.values[context.labels]

    def extra_repr(self) -> str:
        """Return the number of classes and the range of the values."""
        return f"num_classes={self.num_classes}, from {self.least:g} to {self.most:g}"


class ByCount(ByClass):
    r"""m_c = least + (most − least)·minmax(n_c^{−power}): rare classes get the largest margin.

    ``counts`` n are the numbers of samples per class. minmax maps the smallest n^{−power} to 0 and the largest to 1. The power
    1/4 and the range 0.05 to 0.5 are usual. If all counts are equal, every class gets ``most``.

    >>> ByCount([16, 81, 16]).values
    tensor([0.5000, 0.0500, 0.5000])
    """

    def __init__(self, counts: Sequence[int], least: float = 0.05, most: float = 0.5, power: float = 0.25):
        if any(n < 1 for n in counts):
            raise ValueError(f"counts must be integers ≥ 1, one per class, got {list(counts)!r}")
        if not (0 <= least <= most < math.inf and 0 < power < math.inf):
            raise ValueError(f"need 0 ≤ least ≤ most and power > 0, got {least=!r}, {most=!r}, {power=!r}")
        rarity = torch.as_tensor(counts, dtype=torch.float64) ** -power
        spread = rarity.max() - rarity.min()
        share = (rarity - rarity.min()) / spread if spread > 0 else torch.ones_like(rarity)
        super().__init__((least + (most - least) * share).tolist())
