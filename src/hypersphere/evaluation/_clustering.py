"""Comparison of a clustering with the true identities: pairwise and B-cubed measures, NMI, ARI, merged identities."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from .. import plots
from .figures import Figure, Report

UNASSIGNED = -1  # group of samples that belong to no group


def clustering(labels: Shaped[Tensor, "..."], groups: Shaped[Tensor, "..."]) -> "ClusteringReport":
    r"""Compare the groups of a clustering with the true identities.

    All measures follow from the counts n_ij of samples of identity i in group j; only nonzero counts are stored.
    With a_i = Σ_j n_ij and b_j = Σ_i n_ij:

    - pairwise precision Σ_ij C(n_ij, 2) / Σ_j C(b_j, 2) is the share of pairs in one group that are of one identity;
      pairwise recall Σ_ij C(n_ij, 2) / Σ_i C(a_i, 2) is the share of pairs of one identity that are in one group;
    - B-cubed precision 1/n Σ_ij n_ij² / b_j and recall 1/n Σ_ij n_ij² / a_i, in which all samples have equal weight;
    - NMI = 2·I / (H_identities + H_groups), and ARI, the Rand index corrected for chance.

    Args:
        labels: Identity of each sample, integers.
        groups: Group of each sample, integers. A sample with ``-1`` is in no group and counts as a separate group.

    Raises:
        ValueError: If labels and groups differ in shape, are empty or are not integers.

    >>> report = clustering(torch.tensor([0, 0, 0, 1, 1]), torch.tensor([7, 7, 7, 7, -1]))
    >>> round(report.pairwise_precision, 3), report.pairwise_recall, report.merged_identities
    (0.5, 0.75, 2)
    """
    if labels.ndim != 1 or groups.shape != labels.shape or not len(labels):
        raise ValueError(
            f"labels and groups must have the same shape (n,) with n ≥ 1, got {tuple(labels.shape)} and "
            f"{tuple(groups.shape)}"
        )
    if any(ids.is_floating_point() or ids.is_complex() for ids in (labels, groups)):
        raise ValueError(f"labels and groups must be integers, got {labels.dtype} and {groups.dtype}")
    a = labels.cpu().long().unique(return_inverse=True)[1]
    found = groups.cpu().long()
    unassigned = found == UNASSIGNED
    unused = int(found.max()) + 1  # first of the unused numbers, one per unassigned sample
    b = torch.where(unassigned, unused + torch.arange(len(found)), found).unique(return_inverse=True)[1]
    width = int(b.max()) + 1
    cells, counts = (a * width + b).unique(return_counts=True)
    row, column = cells // width, cells % width
    per_identity, per_group = torch.bincount(a), torch.bincount(b)

    both, together, same = (_count_pairs(n) for n in (counts, per_group, per_identity))
    squares = counts.double().square()
    precision = (squares / per_group[column]).sum().item() / len(a)
    recall = (squares / per_identity[row]).sum().item() / len(a)
    entropies = [_entropy(n) for n in (per_identity, per_group, counts)]
    total = entropies[0] + entropies[1]
    return ClusteringReport(
        samples=len(a),
        identities=len(per_identity),
        groups=width - int(unassigned.sum()),
        unassigned=int(unassigned.sum()),
        pairwise_precision=both / together if together else 1.0,
        pairwise_recall=both / same if same else 1.0,
        bcubed_precision=precision,
        bcubed_recall=recall,
        nmi=max(0.0, min(1.0, 2 * (total - entropies[2]) / total)) if total else 1.0,
        ari=_adjusted_rand(both, together, same, _count_pairs(torch.tensor([len(a)]))),
        merged_identities=_count_merged(row, column, counts, len(per_identity), width),
        mixed_groups=int((torch.bincount(column, minlength=width) > 1).sum()),
    )


@dataclass(frozen=True, repr=False)
class ClusteringReport(Report):
    """The measures of :func:`clustering`; ``print(report)`` is a table.

    Attributes:
        samples: Number of samples.
        identities: Number of true identities.
        groups: Number of groups.
        unassigned: Number of samples in no group.
        pairwise_precision: Share of the pairs in one group that are of one identity; 1 if there is no such pair.
        pairwise_recall: Share of the pairs of one identity that are in one group; 1 if there is no such pair.
        bcubed_precision: Mean over samples of the share of the sample's group that has its identity.
        bcubed_recall: Mean over samples of the share of the sample's identity that is in its group.
        nmi: Normalized mutual information, 2·I/(H + H).
        ari: Adjusted Rand index.
        merged_identities: Number of identities that share their main group with another identity. The main group of an
            identity contains most of its samples. If two people are merged into one group, both count.
        mixed_groups: Number of groups with samples of more than one identity.

    >>> perfect = clustering(torch.tensor([0, 0, 1]), torch.tensor([4, 4, 2]))
    >>> perfect.pairwise_f, perfect.bcubed_f, perfect.nmi, perfect.ari, perfect.merged_identities
    (1.0, 1.0, 1.0, 1.0, 0)
    """

    samples: int
    identities: int
    groups: int
    unassigned: int
    pairwise_precision: float
    pairwise_recall: float
    bcubed_precision: float
    bcubed_recall: float
    nmi: float
    ari: float
    merged_identities: int
    mixed_groups: int
    title = "grouping"

    @property
    def pairwise_f(self) -> float:
        """Harmonic mean of pairwise precision and recall."""
        return _harmonic_mean(self.pairwise_precision, self.pairwise_recall)

    @property
    def bcubed_f(self) -> float:
        """Harmonic mean of B-cubed precision and recall."""
        return _harmonic_mean(self.bcubed_precision, self.bcubed_recall)

    def figures(self) -> list[Figure]:
        """Return counts and measures."""
        shares = (
            ("pairwise precision", self.pairwise_precision),
            ("pairwise recall", self.pairwise_recall),
            ("pairwise F", self.pairwise_f),
            ("B-cubed precision", self.bcubed_precision),
            ("B-cubed recall", self.bcubed_recall),
            ("B-cubed F", self.bcubed_f),
        )
        return [
            Figure("samples", self.samples),
            Figure("identities", self.identities),
            Figure("groups", self.groups),
            Figure("unassigned samples", self.unassigned),
            *(Figure(name, value, "fraction") for name, value in shares),
            Figure("NMI", self.nmi),
            Figure("ARI", self.ari),
            Figure("wrongly merged identities", self.merged_identities),
            Figure("mixed groups", self.mixed_groups),
        ]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw a bar per share."""
        shares = {figure.name: float(figure.value) for figure in self.figures() if figure.unit == "fraction"}
        return plots.plot_bars(shares, title=self.title, ax=ax)


def _count_pairs(counts: Int[Tensor, "n"]) -> int:
    """Return Σ C(n, 2), exact in integers."""
    return int((counts * (counts - 1) // 2).sum())


def _harmonic_mean(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b else 0.0


def _entropy(counts: Int[Tensor, "n"]) -> float:
    shares = counts.double() / counts.sum()
    return float(-(shares * shares.log()).sum())


def _adjusted_rand(both: int, together: int, same: int, pairs: int) -> float:
    if not pairs:
        return 1.0
    expected = together * same / pairs
    largest = (together + same) / 2
    return 1.0 if largest == expected else (both - expected) / (largest - expected)


def _count_merged(
    row: Int[Tensor, "c"], column: Int[Tensor, "c"], counts: Int[Tensor, "c"], identities: int, groups: int
) -> int:
    """Return the number of identities that share their main group. Among equal counts, the first group is the main group."""
    order = torch.argsort(counts, descending=True, stable=True)
    order = order[torch.argsort(row[order], stable=True)]  # grouped by identity, largest count first
    first = torch.cat([torch.ones(1, dtype=torch.bool), row[order][1:] != row[order][:-1]])
    main = column[order][first]
    assert len(main) == identities
    return int((torch.bincount(main, minlength=groups)[main] > 1).sum())
