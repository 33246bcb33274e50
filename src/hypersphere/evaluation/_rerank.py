"""Re-ranking of search results by common neighbors of queries and gallery (k-reciprocal encoding)."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._extras import require
from ..geometry import normalize
from .scoring import Score

MAX_FEATURES = 20_000  # limit of queries plus gallery, because all pairs are compared
CHUNK = 1024  # features compared with all others at a time
MIN_OVERLAP = 2 / 3  # minimum share of common neighbors for adding the neighbors of a neighbor (Zhong et al., 2017)


def rerank(
    queries: Float[Tensor, "q d"],
    gallery: Float[Tensor, "g d"] | None = None,
    *,
    k1: int = 20,
    k2: int = 6,
    weight: float = 0.3,
) -> Float[Tensor, "q g"]:
    r"""Return similarities that combine the cosine with the number of common neighbors.

    Two features are k-reciprocal neighbors if each is among the k nearest neighbors of the other. Every feature i is encoded
    by a vector v with :math:`v_j ∝ e^{−(1 − \cos θ_{ij})}` for its k-reciprocal neighbors j, averaged over its ``k2`` nearest
    features. With the Jaccard similarity :math:`J = Σ \min(v, v') / Σ \max(v, v')` the result is
    :math:`(1 − λ) J + λ \cos θ` (Zhong et al., 2017, arXiv:1701.08398). Every similarity depends on all queries and the whole
    gallery. Similarities are therefore not comparable between calls, and calibrated thresholds do not apply to them.

    Args:
        queries: Features to search with.
        gallery: Features to search in; None uses the queries.
        k1: Number k of neighbors. The default is that of the paper.
        k2: Number of features whose encodings are averaged. The default is that of the paper.
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
    features = normalize((queries if gallery is None else torch.cat([queries, gallery])).double()).float()
    if len(features) > MAX_FEATURES:
        raise ValueError(f"re-ranking compares all pairs of at most {MAX_FEATURES:,} features, got {len(features):,}")
    sparse = require("scipy.sparse")
    near = _find_neighbors(features, min(max(k1 + 1, k2), len(features)))
    reciprocal = _find_reciprocal(near[:, : k1 + 1])
    half = _find_reciprocal(near[:, : round(k1 / 2) + 1])
    columns = [_expand_neighbors(reciprocal[i], half) for i in range(len(features))]
    rows = np.repeat(np.arange(len(features)), [len(neighbors) for neighbors in columns])
    indices = np.concatenate(columns)
    cosines = [(features[i] * features[neighbors]).sum(1) for i, neighbors in enumerate(columns)]
    values = np.exp(torch.cat(cosines).numpy().astype(np.float64) - 1)
    code = sparse.csr_matrix((values, (rows, indices)), (len(features), len(features)))
    code = sparse.diags(1 / np.asarray(code.sum(1)).ravel()) @ code
    if k2 > 1:
        nearest = near[:, : min(k2, near.shape[1])]
        rows = np.repeat(np.arange(len(features)), nearest.shape[1])
        mean = sparse.csr_matrix((np.full(nearest.size, 1 / nearest.shape[1]), (rows, nearest.ravel())), code.shape)
        code = mean @ code
    count = len(queries)
    offset = 0 if gallery is None else count
    jaccard = _measure_overlap(code[:count], code[offset:].tocsc())
    result: Tensor = (1 - weight) * torch.from_numpy(jaccard) + weight * features[:count] @ features[offset:].T
    return result


class TableScore(Score):
    """Precomputed similarities as a :class:`Score` whose features are row and column numbers.

    Args:
        values: Similarity of each query with each gallery feature.

    >>> score = TableScore(torch.tensor([[0.1, 0.9]]))
    >>> score.matrix(score.rows(torch.tensor([[0.0]])), score.rows(torch.tensor([[1.0]]))).tolist()
    [[0.8999999761581421]]
    """

    def __init__(self, values: Float[Tensor, "q g"]):
        self.values = values

    def rows(self, features: Float[Tensor, "n 1"], name: str = "features") -> Float[Tensor, "n 1"]:
        """Return the numbers in float64."""
        return features.double()

    def matrix(self, first: Float[Tensor, "n 1"], second: Float[Tensor, "m 1"]) -> Float[Tensor, "n m"]:
        """Return the similarities of the given queries with the given gallery features."""
        return self.values[first[:, 0].long()][:, second[:, 0].long()].double()


def _find_neighbors(features: Float[Tensor, "n d"], k: int) -> Int[np.ndarray, "n k"]:
    """Return the k features with the highest cosines for each feature, the feature itself first."""
    nearest = []
    for start in range(0, len(features), CHUNK):
        cos = features[start : start + CHUNK] @ features.T
        rows = torch.arange(len(cos))
        cos[rows, start + rows] = 2.0  # the feature itself comes before its copies
        nearest.append(cos.topk(k, dim=1).indices)
    return torch.cat(nearest).numpy()


def _find_reciprocal(near: Int[np.ndarray, "n k"]) -> list[np.ndarray]:
    """Return the neighbors of each feature that also have it as a neighbor, including the feature itself."""
    sets = [set(row) for row in near.tolist()]
    return [np.array([j for j in row if i in sets[j]]) for i, row in enumerate(near.tolist())]


def _expand_neighbors(neighbors: Int[np.ndarray, "m"], half: list[np.ndarray]) -> Int[np.ndarray, "_"]:
    """Add the k/2-reciprocal neighbors of each neighbor j if more than ``MIN_OVERLAP`` of them are already included."""
    added = [half[j] for j in neighbors if len(np.intersect1d(half[j], neighbors)) > MIN_OVERLAP * len(half[j])]
    return np.unique(np.concatenate([neighbors, *added]))


def _measure_overlap(queries: Any, gallery: Any) -> Float[np.ndarray, "q g"]:
    """Return the Jaccard similarities Σ min / (2 − Σ min) of rows that sum to 1; ``gallery`` is stored by columns."""
    result = np.zeros((queries.shape[0], gallery.shape[0]), np.float32)
    for i in range(len(result)):
        row = slice(queries.indptr[i], queries.indptr[i + 1])
        for index, value in zip(queries.indices[row], queries.data[row], strict=True):
            column = slice(gallery.indptr[index], gallery.indptr[index + 1])
            result[i, gallery.indices[column]] += np.minimum(gallery.data[column], value)
    return result / (2 - result)
