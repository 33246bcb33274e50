"""Measures of a grouping without labels against the true identities: pairs, B-cubed, NMI, ARI, wrongly merged identities."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from .. import plots
from .figures import Figure, Report

UNASSIGNED = -1


def clustering(labels: Shaped[Tensor, "..."], groups: Shaped[Tensor, "..."]) -> "ClusteringReport":
    r"""Compare groups that were found with the true identities.

    Everything is computed from the table of counts n_ij, the samples of identity i in group j, of which only the entries
    that are not zero are stored. With a_i = Σ_j n_ij and b_j = Σ_i n_ij:

    - pairwise: of the pairs in one group, Σ_j C(b_j, 2), the share Σ_ij C(n_ij, 2) / Σ_j C(b_j, 2) is of one identity
      (precision), and of the pairs of one identity the share Σ_ij C(n_ij, 2) / Σ_i C(a_i, 2) is in one group (recall);
    - B-cubed: precision 1/n Σ_ij n_ij² / b_j and recall 1/n Σ_ij n_ij² / a_i, in which every sample weighs the same;
    - NMI = 2·I / (H_identities + H_groups), and ARI, the Rand index corrected for chance.

    Args:
        labels: The identity of each sample, integers.
        groups: The group of each sample, integers. ``-1`` is a sample that is in no group, and counts as a group of its own.

    Returns:
        The measures.

    Raises:
        ValueError: If the two differ in shape, are empty or are not integers.

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
    given = groups.cpu().long()
    alone = given == UNASSIGNED
    free = int(given.max()) + 1  # numbers above those in use, one per unassigned sample
    b = torch.where(alone, free + torch.arange(len(given)), given).unique(return_inverse=True)[1]
    width = int(b.max()) + 1
    cells, counts = (a * width + b).unique(return_counts=True)
    row, column = cells // width, cells % width
    per_identity, per_group = torch.bincount(a), torch.bincount(b)

    both, together, same = (_pairs(n) for n in (counts, per_group, per_identity))
    squares = counts.double().square()
    precision = (squares / per_group[column]).sum().item() / len(a)
    recall = (squares / per_identity[row]).sum().item() / len(a)
    entropies = [_entropy(n) for n in (per_identity, per_group, counts)]
    total = entropies[0] + entropies[1]
    return ClusteringReport(
        samples=len(a),
        identities=len(per_identity),
        groups=width - int(alone.sum()),
        unassigned=int(alone.sum()),
        pairwise_precision=both / together if together else 1.0,
        pairwise_recall=both / same if same else 1.0,
        bcubed_precision=precision,
        bcubed_recall=recall,
        nmi=max(0.0, min(1.0, 2 * (total - entropies[2]) / total)) if total else 1.0,
        ari=_adjusted_rand(both, together, same, _pairs(torch.tensor([len(a)]))),
        merged_identities=_count_merged(row, column, counts, len(per_identity), width),
        mixed_groups=int((torch.bincount(column, minlength=width) > 1).sum()),
    )


@dataclass(frozen=True, repr=False)
class ClusteringReport(Report):
    """The measures of :func:`clustering`; ``print(report)`` is a table.

    Attributes:
        samples: Number of samples.
        identities: Number of true identities.
        groups: Number of groups that were found.
        unassigned: Number of samples in no group.
        pairwise_precision: Share of the pairs in one group that are of one identity; 1 if there is no such pair.
        pairwise_recall: Share of the pairs of one identity that are in one group; 1 if there is no such pair.
        bcubed_precision: Mean over samples of the share of its group that is of its identity.
        bcubed_recall: Mean over samples of the share of its identity that is in its group.
        nmi: Normalized mutual information, 2·I/(H + H).
        ari: Adjusted Rand index.
        merged_identities: Identities that another identity shares its main group with. The main group of an identity is
            the one with most of its samples. If two people became one group, both count.
        mixed_groups: Groups with samples of more than one identity.

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
        return _harmonic(self.pairwise_precision, self.pairwise_recall)

    @property
    def bcubed_f(self) -> float:
        """Harmonic mean of B-cubed precision and recall."""
        return _harmonic(self.bcubed_precision, self.bcubed_recall)

    def figures(self) -> list[Figure]:
        """Return counts and measures in the order of the table."""
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
        """Draw the shares as bars."""
        shares = {figure.name: float(figure.value) for figure in self.figures() if figure.unit == "fraction"}
        return plots.plot_bars(shares, title=self.title, ax=ax)


def _pairs(counts: Int[Tensor, "n"]) -> int:
    """Return Σ C(n, 2), exact in integers."""
    return int((counts * (counts - 1) // 2).sum())


def _harmonic(a: float, b: float) -> float:
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
    """Return how many identities share their main group with another one. Of equal counts the first group is the main one."""
    order = torch.argsort(counts, descending=True, stable=True)
    order = order[torch.argsort(row[order], stable=True)]  # by identity, the largest count first
    first = torch.cat([torch.ones(1, dtype=torch.bool), row[order][1:] != row[order][:-1]])
    main = column[order][first]
    assert len(main) == identities
    return int((torch.bincount(main, minlength=groups)[main] > 1).sum())
