"""Measures of retrieval as functions of features and labels."""

from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .._extras import require
from ..geometry import normalize
from ._clustering import clustering
from ._retrieval import retrieval
from .intervals import Measurement
from .ranking import check_ids

Features = Float[Tensor, "q d"]
Ids = Shaped[Tensor, "..."]


def mean_average_precision(queries: Features, query_ids: Ids, *gallery: Tensor, **options: Any) -> Measurement:
    """Return mAP: the mean over queries of 1/R Σ_{relevant i} (relevant images up to i)/(rank of i), over the whole gallery.

    R is the number of images relevant to the query. The arguments are those of :func:`retrieval`: features and identities of
    the queries, features and identities of the gallery, cameras, ``own``, ``score`` and ``chunk``. Without a gallery, each
    query is compared with all other queries.

    >>> features = torch.tensor([[1.0, 0.0], [0.9, 0.5], [1.0, 0.1], [0.8, 0.6]])
    >>> round(float(mean_average_precision(features, torch.tensor([0, 0, 1, 1]))), 4)
    0.4167
    """
    return retrieval(queries, query_ids, *gallery, **options).mean_average_precision


def map_at_r(queries: Features, query_ids: Ids, *gallery: Tensor, **options: Any) -> Measurement:
    """Return MAP@R: the mean over queries of 1/R Σ_{i ≤ R} [i-th is relevant]·(relevant images up to i)/i.

    The arguments are those of :func:`retrieval`.

    >>> float(map_at_r(torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)))
    1.0
    """
    return retrieval(queries, query_ids, *gallery, **options).map_at_r


def r_precision(queries: Features, query_ids: Ids, *gallery: Tensor, **options: Any) -> Measurement:
    """Return R-precision: the mean over queries of the share of relevant images among the first R.

    The arguments are those of :func:`retrieval`.

    >>> float(r_precision(torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)))
    1.0
    """
    return retrieval(queries, query_ids, *gallery, **options).r_precision


def recall_at_k(queries: Features, query_ids: Ids, *gallery: Tensor, k: int = 1, **options: Any) -> Measurement:
    """Return recall@k: the share of queries with at least one relevant image among the first ``k``.

    The other arguments are those of :func:`retrieval`.

    >>> recall_at_k(torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2), k=2)
    1.0000 [0.6097, 1.0000]
    """
    return retrieval(queries, query_ids, *gallery, **options).recall(k)


def mean_reciprocal_rank(queries: Features, query_ids: Ids, *gallery: Tensor, **options: Any) -> Measurement:
    """Return MRR: the mean over queries of 1/(rank of the first relevant image).

    The arguments are those of :func:`retrieval`.

    >>> float(mean_reciprocal_rank(torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)))
    1.0
    """
    return retrieval(queries, query_ids, *gallery, **options).mean_reciprocal_rank


def mutual_information(labels: Ids, groups: Ids) -> float:
    """Return NMI of two labelings of the same samples, 2·I(a; b)/(H(a) + H(b)): the ``nmi`` of :func:`clustering`.

    It is 1 if the labelings are equal up to the names of the groups, also if both have a single group. Unlike in
    :func:`clustering`, −1 is the name of a group.

    >>> mutual_information(torch.tensor([0, 0, 1, 1]), torch.tensor([5, 5, 3, 3]))
    1.0
    """
    return clustering(labels, groups.unique(return_inverse=True)[1]).nmi


def normalized_mutual_information(
    features: Float[Tensor, "n d"], labels: Ids, *, seed: int = 0, runs: int = 1
) -> float:
    """Return NMI of the labels and k-means clusters of the directions x̂, with one cluster per identity.

    scikit-learn computes the clusters ``runs`` times from random starts and keeps the best result. k-means finds only a local
    minimum, so the value also depends on the starts.

    >>> normalized_mutual_information(torch.eye(4).repeat(3, 1), torch.arange(4).repeat(3))
    1.0
    """
    ids = check_ids("label", labels, features)
    k_means = require("sklearn.cluster").KMeans(int(ids.unique().numel()), n_init=runs, random_state=seed)
    directions = normalize(features.detach().double()).cpu().numpy()
    return mutual_information(ids.cpu(), torch.from_numpy(k_means.fit_predict(directions)).long())
