"""Approximate search for galleries that are too large to scan, with faiss."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._extras import require
from ..geometry import normalize


class ApproximateIndex:
    """An inverted-file index of unit features (faiss ``IVFFlat``, inner product), which may miss neighbors.

    The features are divided into ``cells``, by default about 4·√g. A search compares a probe with the features of the
    ``probed`` nearest cells; with ``probed = cells`` it is exact. Needs faiss: ``pip install 'torch-hypersphere[search]'``.

    >>> gallery = torch.randn(100, 8)
    >>> scores, indices = ApproximateIndex(gallery, cells=4, probed=4).search(gallery[:2], k=3)
    >>> indices[:, 0].tolist(), scores.shape
    ([0, 1], torch.Size([2, 3]))
    """

    def __init__(self, gallery: Float[Tensor, "g d"], *, cells: int | None = None, probed: int = 16, seed: int = 0):
        faiss = require("faiss", "search")
        cells = min(len(gallery), max(1, round(4 * len(gallery) ** 0.5))) if cells is None else cells
        if not 1 <= cells <= len(gallery) or not probed >= 1:
            raise ValueError(f"cells must be between 1 and {len(gallery)} and probed ≥ 1, got {cells!r} and {probed!r}")
        features = normalize(gallery.detach().float()).cpu().contiguous().numpy()
        quantizer = faiss.IndexFlatIP(gallery.shape[1])
        self._index: Any = faiss.IndexIVFFlat(quantizer, gallery.shape[1], cells, faiss.METRIC_INNER_PRODUCT)
        self._index.cp.seed = seed
        self._index.cp.min_points_per_centroid = (
            1  # the user may choose small galleries, so faiss's warning is silenced
        )
        self._index.train(features)
        self._index.add(features)
        self._index.nprobe = min(probed, cells)

    def search(self, probes: Float[Tensor, "p d"], k: int = 10) -> tuple[Float[Tensor, "p k"], Int[Tensor, "p k"]]:
        """Return cosines and indices like :func:`search`; score −∞ and index −1 if the probed cells have fewer than ``k`` features."""
        scores, indices = self._index.search(normalize(probes.detach().float()).cpu().contiguous().numpy(), k)
        found = torch.from_numpy(indices)
        return torch.from_numpy(scores).clamp(-1, 1).masked_fill(found < 0, -torch.inf), found
