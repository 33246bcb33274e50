"""Identification and verification among a growing number of distractors: the MegaFace protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from .. import plots
from .figures import Figure, Report, format_rate
from .intervals import Measurement, wilson
from .ranking import TIE, check_ids
from .roc import Roc, StreamedRoc
from .scoring import CosineScore

MEGAFACE_FARS = (1e-3, 1e-4, 1e-5, 1e-6)  # MegaFace reports a FAR of 1e-6


def distractor_identification(
    features: Float[Tensor, "n d"],
    ids: Shaped[Tensor, "..."],
    distractors: Float[Tensor, "m d"],
    sizes: Sequence[int] | None = None,
    *,
    chunk: int = 4096,
) -> "DistractorReport":
    """Evaluate by the MegaFace protocol: each feature is a probe for each other feature of its identity, its mate.

    The rank of a (probe, mate) pair is 1 + the number of distractors that score at least as high as the mate. For
    verification, the same pairs are probes with mates, and the different pairs are probes with distractors. Different pairs
    are counted, not stored: TAR at a FAR of 10⁻⁶ among a million distractors is exact in the memory of one chunk.

    Args:
        features: Features ``(n, d)`` of identities with several images.
        ids: Identities of the features, integers.
        distractors: Features ``(m, d)`` of other identities.
        sizes: Numbers of distractors to evaluate with; each uses the first ones. None uses powers of ten and all.
        chunk: Number of distractors compared at a time; affects memory only.

    >>> features, distractors = torch.eye(4).repeat(2, 1), -torch.eye(4).repeat(3, 1)
    >>> report = distractor_identification(features, torch.arange(4).repeat(2), distractors)
    >>> report.rank(1, size=12), report.tar(far=0.1)
    (1.0000 [0.6756, 1.0000], 1.0000 [0.5101, 1.0000])
    """
    ids = check_ids("feature", ids, features)
    if sizes is None:
        sizes = [*(10**e for e in range(1, 9) if 10**e < len(distractors)), len(distractors)]
    sizes = sorted(sizes)
    if not sizes or not 1 <= sizes[0] <= sizes[-1] <= len(distractors):
        raise ValueError(f"sizes must be between 1 and the number of distractors {len(distractors)}, got {sizes}")
    if chunk < 1:
        raise ValueError(f"chunk must be an integer ≥ 1, got {chunk!r}")
    probe, mate, column = _list_mates(ids)
    if not len(probe):
        raise ValueError("ids must name some identity at least twice, got every identity once")
    cosine = CosineScore()
    x = cosine.rows(features, "features")
    # One row per probe, padded to equal length, so that all mates of a probe are located in a sorted chunk at once.
    mate_scores = x.new_zeros(len(x), int(column.max()) + 1)
    mate_scores[probe, column] = (x[probe] * x[mate]).sum(1)
    counted = StreamedRoc(mate_scores[probe, column][probe < mate].round(decimals=12))
    ahead, seen, ranks, rocs = torch.zeros_like(mate_scores, dtype=torch.long), 0, [], []
    for size in sizes:
        while seen < size:
            stop = min(seen + chunk, size)
            scores = cosine.matrix(x, cosine.rows(distractors[seen:stop], "distractors")).sort(dim=1).values
            ahead += (stop - seen) - torch.searchsorted(scores, mate_scores - TIE)
            counted.update(scores.flatten().round(decimals=12))
            seen = stop
        ranks.append(1 + ahead[probe, column])
        rocs.append(counted.roc())
    return DistractorReport(torch.stack(ranks), tuple(sizes), tuple(rocs))


@dataclass(frozen=True, repr=False)
class DistractorReport(Report):
    """Ranks ``(sizes, pairs)`` of each probe's mate and the ROC of verification, for each number of distractors.

    >>> features, distractors = torch.eye(4).repeat(2, 1), -torch.eye(4).repeat(3, 1)
    >>> report = distractor_identification(features, torch.arange(4).repeat(2), distractors, sizes=[5, 12])
    >>> report.ranks.shape, [float(report.rank(1, size)) for size in report.sizes]
    (torch.Size([2, 8]), [1.0, 1.0])
    """

    ranks: Int[Tensor, "sizes pairs"]
    sizes: tuple[int, ...]
    rocs: tuple[Roc, ...]
    title = "identification among distractors"

    def rank(self, k: int = 1, size: int | None = None) -> Measurement:
        """Return the rank-``k`` rate among ``size`` distractors (all by default), with Wilson's 95 % interval.

        Pairs that share a probe are not independent, so the interval is too narrow for few identities.
        """
        if k < 1:
            raise ValueError(f"k must be an integer ≥ 1, got {k!r}")
        ranks = self.ranks[self._find_size(size)]
        return wilson(int((ranks <= k).sum()), len(ranks))

    def tar(self, far: float, size: int | None = None) -> Measurement:
        """Return the share of mates accepted at the lowest threshold with a FAR of at most ``far``.

        The different pairs are all probes with ``size`` distractors (all by default). Raises ``ValueError`` if there are
        fewer than 1/far different pairs. The interval is Wilson's over the mates.
        """
        roc = self.rocs[self._find_size(size)]
        return wilson(int(roc.accepted_same[roc.at_far(far)]), roc.positives)

    def figures(self) -> list[Figure]:
        """Return rank-1 and rank-10 rates for every number of distractors, and TAR at FAR among all distractors."""
        pairs, roc = self.ranks.shape[1], self.rocs[-1]
        figures = [
            Figure.of(f"rank-{k} @ {size} distractors", self.rank(k, size), count=pairs)
            for size in self.sizes
            for k in (1, 10)
        ]
        figures += [
            Figure.of(f"TAR@FAR={format_rate(far)}", self.tar(far), count=roc.positives)
            for far in roc.resolve_fars(MEGAFACE_FARS)
        ]
        return [Figure("probe and mate", pairs, "pairs"), Figure("different", roc.negatives, "pairs"), *figures]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw rank-1 and rank-10 rates over the number of distractors (fig. D.5)."""
        rates = {f"rank-{k}": [self.rank(k, size) for size in self.sizes] for k in (1, 10)}
        return plots.plot_distractors(self.sizes, rates, title=self.title, ax=ax)

    def _find_size(self, size: int | None) -> int:
        size = self.sizes[-1] if size is None else size
        if size not in self.sizes:
            raise ValueError(f"size must be one of {self.sizes}, got {size!r}")
        return self.sizes.index(size)


def _list_mates(ids: Int[Tensor, "n"]) -> Int[Tensor, "3 pairs"]:
    """Return all ordered pairs of one identity: index of the probe, index of its mate, and number of the mate."""
    parts = []
    for members in ids.argsort().split(ids.unique(return_counts=True)[1].tolist()):
        m = len(members)
        others = members.expand(m, m)[~torch.eye(m, dtype=torch.bool, device=ids.device)]
        number = torch.arange(m - 1, device=ids.device).repeat(m)
        parts.append(torch.stack([members.repeat_interleave(m - 1), others, number]))
    return torch.cat(parts, 1)
