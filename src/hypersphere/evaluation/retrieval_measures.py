"""Measures of retrieval as functions of features and labels."""

from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .._extras import require
from ..geometry import normalize
from ._retrieval import retrieval
from .intervals import Measurement
from .ranking import check_ids

Ids = Shaped[Tensor, "..."]


def mean_average_precision(
    queries: Float[Tensor, "q d"],
    query_ids: Ids,
    gallery: Float[Tensor, "g d"] | None = None,
    gallery_ids: Ids | None = None,
    **options: Any,
) -> Measurement:
    """Return mAP: the mean over queries of 1/R Σ_{relevant i} (relevant images up to i)/(rank of i), over the whole gallery.

    R is the number of images relevant to the query. Without a gallery, each query is compared with all other queries. The
    options are those of :func:`retrieval`: cameras, ``own``, ``score`` and ``chunk``.

    >>> features = torch.tensor([[1.0, 0.0], [0.9, 0.5], [1.0, 0.1], [0.8, 0.6]])
    >>> round(float(mean_average_precision(features, torch.tensor([0, 0, 1, 1]))), 4)
    0.4167
    """
    return retrieval(queries, query_ids, gallery, gallery_ids, **options).mean_average_precision


def map_at_r(
    queries: Float[Tensor, "q d"],
    query_ids: Ids,
    gallery: Float[Tensor, "g d"] | None = None,
    gallery_ids: Ids | None = None,
    **options: Any,
) -> Measurement:
    """Return MAP@R: the mean over queries of 1/R Σ_{i ≤ R} [i-th is relevant]·(relevant images up to i)/i.

    Arguments as in :func:`mean_average_precision`.

    >>> float(map_at_r(torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)))
    1.0
    """
    return retrieval(queries, query_ids, gallery, gallery_ids, **options).map_at_r


def r_precision(
    queries: Float[Tensor, "q d"],
    query_ids: Ids,
    gallery: Float[Tensor, "g d"] | None = None,
    gallery_ids: Ids | None = None,
    **options: Any,
) -> Measurement:
    """Return R-precision: the mean over queries of the share of relevant images among the first R.

    Arguments as in :func:`mean_average_precision`.

    >>> float(r_precision(torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)))
    1.0
    """
    return retrieval(queries, query_ids, gallery, gallery_ids, **options).r_precision


def recall_at_k(
    queries: Float[Tensor, "q d"],
    query_ids: Ids,
    gallery: Float[Tensor, "g d"] | None = None,
    gallery_ids: Ids | None = None,
    *,
    k: int = 1,
    **options: Any,
) -> Measurement:
    """Return recall@k: the share of queries with at least one relevant image among the first ``k``.

    Other arguments as in :func:`mean_average_precision`.

    >>> recall_at_k(torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2), k=2)
    1.0000 [0.6097, 1.0000]
    """
    return retrieval(queries, query_ids, gallery, gallery_ids, **options).recall(k)


def mean_reciprocal_rank(
    queries: Float[Tensor, "q d"],
    query_ids: Ids,
    gallery: Float[Tensor, "g d"] | None = None,
    gallery_ids: Ids | None = None,
    **options: Any,
) -> Measurement:
    """Return MRR: the mean over queries of 1/(rank of the first relevant image). Arguments as in :func:`mean_average_precision`.

    >>> float(mean_reciprocal_rank(torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)))
    1.0
    """
    return retrieval(queries, query_ids, gallery, gallery_ids, **options).mean_reciprocal_rank


def mutual_information(labels: Ids, clusters: Ids) -> float:
    """Return NMI of two labelings of the same samples, 2·I(a; b)/(H(a) + H(b)).

    It is 1 if the labelings are equal up to the names of the clusters, also if both have a single cluster.

    >>> mutual_information(torch.tensor([0, 0, 1, 1]), torch.tensor([5, 5, 3, 3]))
    1.0
    """
    if labels.ndim != 1 or clusters.shape != labels.shape or not len(labels):
        raise ValueError(
            f"labels and clusters must have the same shape (n,), got {tuple(labels.shape)} and {tuple(clusters.shape)}"
        )
    (label_names, a), (cluster_names, b) = (ids.cpu().unique(return_inverse=True) for ids in (labels, clusters))
    size = len(label_names), len(cluster_names)
    joint = torch.bincount(a * size[1] + b, minlength=size[0] * size[1]).double().view(size) / len(a)
    rows, columns = joint.sum(1), joint.sum(0)
    total = _entropy(rows) + _entropy(columns)
    if total == 0:
        return 1.0
    return max(0.0, 2 * (total - _entropy(joint.flatten())) / total)


def normalized_mutual_information(
    features: Float[Tensor, "n d"], labels: Ids, *, seed: int = 0, runs: int = 1
) -> float:
    """Return NMI of the labels and k-means clusters of the directions x̂, with one cluster per identity.

    scikit-learn computes the clusters and keeps the best of ``runs`` starts. k-means finds a local minimum, so the value
    depends on the start, not on the features alone.

    >>> normalized_mutual_information(torch.eye(4).repeat(3, 1), torch.arange(4).repeat(3))
    1.0
    """
    ids = check_ids("label", labels, features)
    k_means = require("sklearn.cluster").KMeans(int(ids.unique().numel()), n_init=runs, random_state=seed)
    directions = normalize(features.detach().double()).cpu().numpy()
    return mutual_information(ids.cpu(), torch.from_numpy(k_means.fit_predict(directions)).long())


def _entropy(shares: Float[Tensor, "n"]) -> float:
    shares = shares[shares > 0]
    return float(-(shares * shares.log()).sum())
