"""Closed-set identification: every probe's identity is in the gallery; at which rank is it found?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from .intervals import Estimate, wilson
from .ranking import TIE, check_ids, ranking, unit
from .report import Number, Report


def identification(
    probes: Float[Tensor, "p d"],
    probe_ids: Shaped[Tensor, "..."],
    gallery: Float[Tensor, "g d"],
    gallery_ids: Shaped[Tensor, "..."],
    *,
    chunk: int = 256,
) -> "IdentificationReport":
    """Rank-k rates and the cumulative match characteristic, by cosine, an identity counting by its best template.

    Every probe must have a mate in the gallery (:func:`open_set` is for when some have not). A tie counts against the probe.

    >>> gallery = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> report = identification(torch.tensor([[2.0, 1.0], [1.0, 0.5]]), torch.tensor([0, 1]), gallery, torch.tensor([0, 1, 2]))
    >>> report.rank(1), report.rank(2)
    (0.5000 [0.0945, 0.9055], 1.0000 [0.3424, 1.0000])
    """
    result = ranking(probes, probe_ids, gallery, gallery_ids, chunk)
    if not result.mated.all():
        raise ValueError(
            f"every probe needs its identity in the gallery, got {int((~result.mated).sum())} without; open_set takes those"
        )
    return IdentificationReport(result.rank, int(gallery_ids.unique().numel()))


@dataclass(frozen=True, repr=False)
class IdentificationReport(Report):
    """Ranks ``(probes,)`` of the right identity among ``identities``."""

    ranks: Int[Tensor, "p"]
    identities: int
    title = "closed-set identification"

    def rank(self, k: int = 1) -> Estimate:
        """The share of probes whose identity is among the first ``k``, with Wilson's 95 % interval."""
        if k < 1:
            raise ValueError(f"k must be an integer ≥ 1, got {k!r}")
        return wilson(int((self.ranks <= k).sum()), len(self.ranks))

    @property
    def cmc(self) -> Float[Tensor, "identities"]:
        """Cumulative match characteristic: entry k − 1 is the rank-k rate."""
        counts = torch.bincount(self.ranks - 1, minlength=self.identities)
        return counts.cumsum(0).double() / len(self.ranks)

    def numbers(self) -> dict[str, Number]:
        """Rank-1, 5, 10 and 20 rates as far as the gallery goes."""
        rates = {f"rank-{k}": float(self.rank(k)) for k in (1, 5, 10, 20) if k <= self.identities}
        return {"probes": len(self.ranks), "identities": self.identities, **rates}

    def draw(self, axes: Any) -> None:
        """The CMC curve."""
        axes.semilogx(range(1, self.identities + 1), self.cmc.tolist(), label=f"rank-1 {float(self.rank(1)):.4f}")
        axes.set(xlabel="rank", ylabel="identification rate", title=self.title)
        axes.legend(loc="lower right")


def distractor_identification(
    features: Float[Tensor, "n d"],
    ids: Shaped[Tensor, "..."],
    distractors: Float[Tensor, "m d"],
    sizes: Sequence[int] | None = None,
    *,
    chunk: int = 4096,
) -> "DistractorReport":
    """The MegaFace protocol: each feature is a probe for each other feature of its identity, its one mate among N distractors.

    The rank of a (probe, mate) pair is 1 + the number of distractors that score at least as high as the mate.
    ``sizes`` are the N, the first N distractors being used; by default powers of ten and all of them.
    """
    ids = check_ids("feature", ids, features)
    sizes = (
        sorted(sizes)
        if sizes is not None
        else sorted({*(10**e for e in range(1, 9) if 10**e < len(distractors)), len(distractors)})
    )
    if not sizes or not 1 <= sizes[0] <= sizes[-1] <= len(distractors):
        raise ValueError(f"sizes must be between 1 and the number of distractors {len(distractors)}, got {sizes}")
    probe, mate, column = _mates(ids)
    if not len(probe):
        raise ValueError("ids must name some identity at least twice, got every identity once")
    x = unit(features, "features")
    # Rows of equal length, so that one sorted chunk serves all mates of a probe; the padding is never read back.
    mate_scores = x.new_zeros(len(x), int(column.max()) + 1)
    mate_scores[probe, column] = (x[probe] * x[mate]).sum(1)
    ahead, seen, ranks = torch.zeros_like(mate_scores, dtype=torch.long), 0, []
    for size in sizes:
        while seen < size:
            stop = min(seen + chunk, size)
            scores = (x @ unit(distractors[seen:stop], "distractors").T).sort(dim=1).values
            ahead += (stop - seen) - torch.searchsorted(scores, mate_scores - TIE)
            seen = stop
        ranks.append(1 + ahead[probe, column])
    return DistractorReport(torch.stack(ranks), tuple(sizes))


@dataclass(frozen=True, repr=False)
class DistractorReport(Report):
    """Ranks ``(sizes, pairs)`` of each probe's mate for each number of distractors."""

    ranks: Int[Tensor, "sizes pairs"]
    sizes: tuple[int, ...]
    title = "identification among distractors"

    def rank(self, k: int = 1, size: int | None = None) -> Estimate:
        """The rank-``k`` rate among ``size`` distractors (all of them by default), with Wilson's 95 % interval.

        Pairs that share a probe are not independent, so the interval is narrower than it should be for few identities.
        """
        size = self.sizes[-1] if size is None else size
        if size not in self.sizes or k < 1:
            raise ValueError(f"size must be one of {self.sizes} and k ≥ 1, got {size!r} and {k!r}")
        ranks = self.ranks[self.sizes.index(size)]
        return wilson(int((ranks <= k).sum()), len(ranks))

    def numbers(self) -> dict[str, Number]:
        """Rank-1 and rank-10 rates for every number of distractors."""
        rates = {f"rank-{k} @ {size}": float(self.rank(k, size)) for size in self.sizes for k in (1, 10)}
        return {"pairs": self.ranks.shape[1], **rates}

    def draw(self, axes: Any) -> None:
        """Rank-1 and rank-10 rates over the number of distractors (fig. D.5)."""
        for k in (1, 10):
            axes.semilogx(self.sizes, [self.rank(k, size) for size in self.sizes], marker="o", label=f"rank-{k}")
        axes.set(xlabel="distractors", ylabel="identification rate", title=self.title)
        axes.legend()


def _mates(ids: Int[Tensor, "n"]) -> Int[Tensor, "3 pairs"]:
    """Every ordered pair of one identity: the probe, its mate, and which of the probe's mates it is."""
    parts = []
    for members in ids.argsort().split(ids.unique(return_counts=True)[1].tolist()):
        m = len(members)
        others = members.expand(m, m)[~torch.eye(m, dtype=torch.bool, device=ids.device)]
        which = torch.arange(m - 1, device=ids.device).repeat(m)
        parts.append(torch.stack([members.repeat_interleave(m - 1), others, which]))
    return torch.cat(parts, 1)
