"""Re-ranking of a search by the neighbors that probes and gallery have in common (k-reciprocal encoding)."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._extras import require
from ..geometry import normalize
from .scoring import Score

MAX_FEATURES = 20_000  # limit of queries and gallery together, because all pairs are compared
CHUNK = 1024  # number of features compared with all others at a time
OVERLAP = 2 / 3  # share of a neighbor's neighbors that must be common before they are added (Zhong et al., 2017)


def rerank(
    queries: Float[Tensor, "q d"],
    gallery: Float[Tensor, "g d"] | None = None,
    *,
    k1: int = 20,
    k2: int = 6,
    weight: float = 0.3,
) -> Float[Tensor, "q g"]:
    r"""Return similarities that also count the neighbors that two features have in common.

    j is a k-reciprocal neighbor of i if each is among the k nearest of the other. Every feature is encoded by a vector v with
    :math:`v_j ∝ e^{−(1 − \cos θ_{ij})}` for its k-reciprocal neighbors, averaged over its ``k2`` nearest features. With the
    Jaccard similarity :math:`J = Σ \min(v, v') / Σ \max(v, v')` the result is :math:`(1 − λ) J + λ \cos θ`
    (Zhong et al., 2017, arXiv:1701.08398). All queries and the whole gallery influence every similarity, so they are neither
    cosines nor comparable between two calls: calibrated thresholds do not hold for them.

    Args:
        queries: Features to search with.
        gallery: Features to search in. None searches the queries among themselves.
        k1: Neighbors of the first search. The default is that of the paper.
        k2: Features whose encodings are averaged. The default is that of the paper.
        weight: λ, the weight of the cosine. The default is that of the paper.

    Returns:
        Similarities in [−λ, 1], in float32.

    Raises:
        ValueError: If an argument is out of range, or there are more than 20,000 features.

    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> rerank(x, k1=1, k2=1).argsort(1, descending=True)[:, :2].tolist()
    [[0, 1], [1, 0], [2, 3], [3, 2]]
    """
    if k1 < 1 or k2 < 1 or not 0 <= weight <= 1:
        raise ValueError(f"k1 and k2 must be ≥ 1 and weight in [0, 1], got {k1!r}, {k2!r} and {weight!r}")
    every = normalize((queries if gallery is None else torch.cat([queries, gallery])).double()).float()
    if len(every) > MAX_FEATURES:
        raise ValueError(f"re-ranking compares all pairs of at most {MAX_FEATURES:,} features, got {len(every):,}")
    sparse = require("scipy.sparse")
    near = _find_neighbors(every, min(max(k1 + 1, k2), len(every)))
    first = near[:, : k1 + 1]
    mutual = _find_mutual(first)
    half = _find_mutual(near[:, : round(k1 / 2) + 1])
    columns = [_expand(mutual[i], half) for i in range(len(every))]
    rows = np.repeat(np.arange(len(every)), [len(found) for found in columns])
    places = np.concatenate(columns)
    cosines = [(every[i] * every[found]).sum(1) for i, found in enumerate(columns)]
    values = np.exp(torch.cat(cosines).numpy().astype(np.float64) - 1)
    code = sparse.csr_matrix((values, (rows, places)), (len(every), len(every)))
    code = sparse.diags(1 / np.asarray(code.sum(1)).ravel()) @ code
    if k2 > 1:
        among = near[:, : min(k2, near.shape[1])]
        owners = np.repeat(np.arange(len(every)), among.shape[1])
        mean = sparse.csr_matrix((np.full(among.size, 1 / among.shape[1]), (owners, among.ravel())), code.shape)
        code = mean @ code
    count = len(queries)
    offset = 0 if gallery is None else count
    jaccard = _measure_overlap(code[:count], code[offset:].tocsc())
    result: Tensor = (1 - weight) * torch.from_numpy(jaccard) + weight * every[:count] @ every[offset:].T
    return result


class TableScore(Score):
    """Similarities that were computed before, as a :class:`Score` of feature numbers.

    Args:
        values: The similarity of each query with each gallery feature.

    >>> score = TableScore(torch.tensor([[0.1, 0.9]]))
    >>> score.matrix(score.rows(torch.tensor([[0.0]])), score.rows(torch.tensor([[1.0]]))).tolist()
    [[0.8999999761581421]]
    """

    def __init__(self, values: Float[Tensor, "q g"]):
        self.values = values

    def rows(self, features: Float[Tensor, "n 1"], name: str = "features") -> Float[Tensor, "n 1"]:
        """Return the numbers of the features."""
        return features.double()

    def matrix(self, first: Float[Tensor, "n 1"], second: Float[Tensor, "m 1"]) -> Float[Tensor, "n m"]:
        """Return the similarities of numbered queries with numbered gallery features."""
        return self.values[first[:, 0].long()][:, second[:, 0].long()].double()


def _find_neighbors(every: Float[Tensor, "n d"], k: int) -> Int[np.ndarray, "n k"]:
    """Return the k features with the highest cosines, the feature itself first."""
    places = []
    for start in range(0, len(every), CHUNK):
        cos = every[start : start + CHUNK] @ every.T
        rows = torch.arange(len(cos))
        cos[rows, start + rows] = 2.0  # copies of a feature must not come before it
        places.append(cos.topk(k, dim=1).indices)
    return torch.cat(places).numpy()


def _find_mutual(near: Int[np.ndarray, "n k"]) -> list[np.ndarray]:
    """Return, for each feature, those of its neighbors that have it as a neighbor, itself included."""
    sets = [set(row) for row in near.tolist()]
    return [np.array([j for j in row if i in sets[j]]) for i, row in enumerate(near.tolist())]


def _expand(own: Int[np.ndarray, "m"], half: list[np.ndarray]) -> Int[np.ndarray, "_"]:
    """Return the k-reciprocal neighbors with those of each neighbor most of whose own are among them."""
    added = [half[j] for j in own if len(np.intersect1d(half[j], own)) > OVERLAP * len(half[j])]
    return np.unique(np.concatenate([own, *added]))


def _measure_overlap(queries: Any, gallery: Any) -> Float[np.ndarray, "q g"]:
    """Return the Jaccard similarity Σ min / (2 − Σ min) of rows that sum to 1, given as sparse rows and sparse columns."""
    result = np.zeros((queries.shape[0], gallery.shape[0]), np.float32)
    for i in range(len(result)):
        row = slice(queries.indptr[i], queries.indptr[i + 1])
        for place, value in zip(queries.indices[row], queries.data[row], strict=True):
            column = slice(gallery.indptr[place], gallery.indptr[place + 1])
            result[i, gallery.indices[column]] += np.minimum(gallery.data[column], value)
    return result / (2 - result)
