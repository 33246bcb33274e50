"""Grouping without labels: average linkage of calibrated log-odds on a graph of nearest neighbors, with constraints."""

import heapq
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..evaluation.score_calibration import LogisticCalibration
from ..geometry import normalize
from ._search import search

UNASSIGNED = -1
DEFAULT_NEIGHBORS = 64  # more change nothing on LFW; see benchmarks/reports/grouping.md
DEFAULT_PRIOR = 1e-4  # chosen on folds 0–4 of LFW, as γ is; see benchmarks/reports/grouping.md
EVIDENCE_GROWTH = 0.2  # γ: a mean over more pairs is more certain, though pairs of the same samples are not independent


@dataclass(frozen=True)
class Constraints:
    """Knowledge about samples before they are grouped.

    Args:
        photographs: The number of the photograph of each sample. Two faces of one photograph are never the same identity. A
            negative number means unknown.
        fixed: The number of the fixed group of each sample. Samples with the same number stay together, and samples with
            different numbers are never joined. A negative number means that the sample is free.
        forbidden: Pairs (sample, fixed number): the sample does not belong to that group.

    >>> Constraints(photographs=[0, 0, 1]).fixed is None
    True
    """

    photographs: Sequence[int] | None = None
    fixed: Sequence[int] | None = None
    forbidden: Collection[tuple[int, int]] = field(default_factory=frozenset)


def group_features(
    features: Float[Tensor, "n d"],
    calibration: LogisticCalibration,
    constraints: Constraints | None = None,
    *,
    prior: float = DEFAULT_PRIOR,
    neighbors: int = DEFAULT_NEIGHBORS,
) -> Int[Tensor, "n"]:
    r"""Put samples of one identity into one group, by calibrated probabilities and without labels.

    A calibration converts the cosine of two features to the log-odds of one identity, ℓ(c) = slope·c + offset. Two groups A
    and B are compared by the mean of ℓ over all pairs. Because ℓ is linear, this is ℓ of the mean cosine
    s_A·s_B / (|A||B|), where s is the sum of the unit features of a group. Starting from single samples, the two groups with the
    highest posterior log-odds

    .. math:: (|A||B|)^γ · ℓ(mean cosine) + \log\frac{prior}{1 - prior}

    are joined until no two groups are more likely to be one identity than two. Only groups that the graph of nearest neighbors
    connects are compared. Groups whose constraints contradict each other are never joined.

    Args:
        features: One row per sample, of any length.
        calibration: The log-odds of two features with a given cosine.
        constraints: Faces of one photograph, known groups and known mistakes.
        prior: The prior probability that two samples are of one identity. Lower values give purer and smaller groups. The
            default is the best of the values compared on LFW.
        neighbors: Nearest neighbors per sample in the graph.

    Returns:
        A group number per sample. Samples of fixed groups keep their number. Other groups get numbers above all fixed ones,
        the largest group first. Samples without a group get ``-1``.

    Raises:
        ValueError: If an argument is out of its range, or a feature is not finite or zero.

    >>> features = torch.tensor([[1.0, 0.0], [0.99, 0.1], [0.0, 1.0], [-1.0, 0.0], [-1.0, 0.1]])
    >>> group_features(features, LogisticCalibration(slope=30.0, offset=-15.0)).tolist()
    [0, 0, -1, 1, 1]
    """
    constraints = constraints or Constraints()
    _check_arguments(features, constraints, prior, neighbors)
    if not len(features):
        return torch.empty(0, dtype=torch.long)
    unit = normalize(features.detach().cpu().double())
    fixed = [UNASSIGNED] * len(unit) if constraints.fixed is None else [int(number) for number in constraints.fixed]
    clusters = _Clusters(unit.numpy(), calibration, math.log(prior / (1 - prior)), constraints, fixed)
    first, second, cosines = build_neighbor_graph(unit.float(), neighbors)  # cosines are computed again in float64
    clusters.connect(first, second, cosines)
    clusters.join_all()
    return torch.tensor(_number_groups(clusters.members(), fixed))


def membership(
    features: Float[Tensor, "n d"],
    groups: Int[Tensor, "n"],
    calibration: LogisticCalibration,
    *,
    prior: float = DEFAULT_PRIOR,
) -> Float[Tensor, "n"]:
    """Return the probability that each sample belongs to its group, compared with all others of the group.

    Args:
        features: One row per sample.
        groups: The group number of each sample; negative for none.
        calibration: The log-odds of two features with a given cosine.
        prior: The prior probability that two samples are of one identity.

    Returns:
        Probabilities; 1 for the only sample of a group, 0 for a sample without a group.

    >>> features = torch.tensor([[1.0, 0.0], [0.99, 0.1], [0.3, 1.0]])
    >>> sure = membership(features, torch.tensor([0, 0, 0]), LogisticCalibration(30.0, -15.0), prior=0.5)
    >>> (sure > 0.5).tolist()
    [True, True, False]
    """
    result = torch.zeros(len(features), dtype=torch.double)
    if not len(features):
        return result
    unit = normalize(features.detach().cpu().double())
    order = torch.argsort(groups, stable=True)
    order = order[groups[order] >= 0]
    for part in torch.split(order, torch.unique_consecutive(groups[order], return_counts=True)[1].tolist()):
        if len(part) == 1:
            result[part] = 1.0
            continue
        total = unit[part].sum(0)
        cosines = (unit[part] @ total - 1) / (len(part) - 1)
        evidence = calibration.log_odds(cosines) * (len(part) - 1) ** EVIDENCE_GROWTH
        result[part] = torch.sigmoid(evidence + math.log(prior / (1 - prior)))
    return result


def build_neighbor_graph(
    features: Float[Tensor, "n d"], neighbors: int
) -> tuple[Int[np.ndarray, "e"], Int[np.ndarray, "e"], Float[np.ndarray, "e"]]:
    """Return the edges between samples and their nearest neighbors: both ends and the cosine. Each edge occurs once.

    >>> first, second, cosines = build_neighbor_graph(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), 1)
    >>> list(zip(first.tolist(), second.tolist()))
    [(0, 1), (1, 2)]
    """
    if len(features) < 2:
        return np.empty(0, int), np.empty(0, int), np.empty(0)
    scores, found = search(features, features, k=min(neighbors + 1, len(features)))
    rows = np.repeat(np.arange(len(features)), found.shape[1])
    columns, values = found.numpy().ravel(), scores.double().numpy().ravel()
    other = rows != columns
    first, second = np.minimum(rows, columns)[other], np.maximum(rows, columns)[other]
    _, once = np.unique(first * len(features) + second, return_index=True)
    return first[once], second[once], values[other][once]


class _Clusters:
    """Clusters that are joined in pairs. A joined cluster gets a new number, so entries of the heap stay valid."""

    def __init__(
        self,
        unit: Float[np.ndarray, "n d"],
        calibration: LogisticCalibration,
        prior_odds: float,
        constraints: Constraints,
        fixed: Sequence[int],
    ):
        self.calibration, self.prior_odds = calibration, prior_odds
        photographs = constraints.photographs or [UNASSIGNED] * len(unit)
        forbidden: dict[int, set[int]] = {}
        for sample, number in constraints.forbidden:
            forbidden.setdefault(sample, set()).add(number)
        starts: dict[tuple[bool, int], list[int]] = {}
        for i, number in enumerate(fixed):
            starts.setdefault((number >= 0, number if number >= 0 else i), []).append(i)
        self.samples: list[list[int] | None] = list(starts.values())
        self.fixed = [number if known else UNASSIGNED for known, number in starts]
        self.photographs = [{int(photographs[i]) for i in part if photographs[i] >= 0} for part in starts.values()]
        self.forbidden = [set().union(*(forbidden.get(i, ()) for i in part)) for part in starts.values()]
        self.sizes = [len(part) for part in starts.values()]
        self.sums = [unit[part].sum(0) for part in starts.values()]
        self.neighbors: list[set[int]] = [set() for _ in starts]
        self.heap: list[tuple[float, int, int]] = []
        self.cluster_of = np.empty(len(unit), int)
        for cluster, part in enumerate(starts.values()):
            self.cluster_of[part] = cluster

    def connect(self, first: np.ndarray, second: np.ndarray, cosines: np.ndarray) -> None:
        """Add edges between samples, without those of negative log-odds: a mean is never larger than its largest term."""
        positive = self.calibration.slope * cosines + self.calibration.offset > 0
        ends = np.stack([self.cluster_of[first[positive]], self.cluster_of[second[positive]]], 1)
        for a, b in np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0).tolist():
            self.neighbors[a].add(b)
            self.neighbors[b].add(a)
        for a, others in enumerate(self.neighbors):
            self._push(a, [b for b in others if b > a])

    def join_all(self) -> None:
        """Join the two most likely clusters until no two are more likely to be one identity than two."""
        while self.heap:
            _, a, b = heapq.heappop(self.heap)
            if self.samples[a] is not None and self.samples[b] is not None and self._are_compatible(a, b):
                self._join(a, b)

    def members(self) -> list[list[int]]:
        """Return the samples of every cluster."""
        return [part for part in self.samples if part is not None]

    def _are_compatible(self, a: int, b: int) -> bool:
        if self.fixed[a] >= 0 and self.fixed[b] >= 0:
            return False
        if self.fixed[a] in self.forbidden[b] or self.fixed[b] in self.forbidden[a]:
            return False
        return self.photographs[a].isdisjoint(self.photographs[b])

    def _join(self, a: int, b: int) -> None:
        new = len(self.samples)
        first, second = self.samples[a], self.samples[b]
        assert first is not None
        assert second is not None
        self.samples.append(first + second)
        self.samples[a] = self.samples[b] = None
        self.fixed.append(max(self.fixed[a], self.fixed[b]))
        self.photographs.append(self.photographs[a] | self.photographs[b])
        self.forbidden.append(self.forbidden[a] | self.forbidden[b])
        self.sizes.append(self.sizes[a] + self.sizes[b])
        self.sums.append(self.sums[a] + self.sums[b])
        others = (self.neighbors[a] | self.neighbors[b]) - {a, b}
        self.neighbors.append(others)
        for other in others:
            self.neighbors[other] -= {a, b}
            self.neighbors[other].add(new)
        empty: set[int] = set()
        self.neighbors[a] = self.neighbors[b] = empty
        self._push(new, list(others))

    def _push(self, cluster: int, others: list[int]) -> None:
        if not others:
            return
        sizes = np.array([self.sizes[other] for other in others], float) * self.sizes[cluster]
        cosines = np.stack([self.sums[other] for other in others]) @ self.sums[cluster] / sizes
        evidence = (self.calibration.slope * cosines + self.calibration.offset) * sizes**EVIDENCE_GROWTH
        for other, odds in zip(others, (evidence + self.prior_odds).tolist(), strict=True):
            if odds > 0:
                heapq.heappush(self.heap, (-odds, cluster, other))


def _number_groups(parts: list[list[int]], fixed: Sequence[int]) -> list[int]:
    """Return the group of each sample: fixed groups keep their number, others follow by size, single samples have none."""
    result = [UNASSIGNED] * len(fixed)
    next_number = max(fixed, default=UNASSIGNED) + 1
    for part in sorted(parts, key=lambda part: (-len(part), min(part))):
        known = max(fixed[i] for i in part)
        if known < 0 and len(part) == 1:
            continue
        number = known if known >= 0 else next_number
        next_number += known < 0
        for i in part:
            result[i] = number
    return result


def _check_arguments(features: Tensor, constraints: Constraints, prior: float, neighbors: int) -> None:
    if not features.isfinite().all():
        raise ValueError("features must be finite, got NaN or infinity")
    if not (features != 0).any(1).all():
        raise ValueError("features must have a direction, got a row of zeros")
    if not 0 < prior < 1:
        raise ValueError(f"prior must be between 0 and 1, got {prior!r}")
    if neighbors < 1:
        raise ValueError(f"neighbors must be an integer ≥ 1, got {neighbors!r}")
    for name in ("photographs", "fixed"):
        numbers = getattr(constraints, name)
        if numbers is not None and len(numbers) != len(features):
            raise ValueError(f"{name} must have one number for each of {len(features)} samples, got {len(numbers)}")
    for sample, number in constraints.forbidden:
        if not 0 <= sample < len(features) or number < 0:
            raise ValueError(f"forbidden must hold pairs (sample, fixed number), got {(sample, number)!r}")
