"""Norms of the class weights and biases of a plain classifier (fig. A.2, A.3)."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .canvas import axes, color, tidy


def plot_class_norms(
    weight: Float[Tensor, "classes dim"], labels: Int[Tensor, " n"], *, title: str = "", ax: Any = None
) -> tuple[Any, Any]:
    """Draw ‖w_c‖ of each class over the number of its training samples, and return ``(fig, ax)`` (fig. A.2 of Liu, 2020).

    If norms increase with the number of samples, the classifier has learned the frequencies of the classes. This prior does
    not transfer to other identities; normalizing the weights removes it. The legend shows Spearman's rank correlation.

    Args:
        weight: Weights of the classifier in rows.
        labels: Labels of the training samples.
        title: Title of the chart.
        ax: Axes to draw on; None makes a new figure.

    Raises:
        ValueError: If ``weight`` has no row for a label.

    >>> fig, ax = plot_class_norms(torch.diag(torch.tensor([1.0, 2.0, 3.0])), torch.tensor([0, 1, 1, 2, 2, 2]))
    >>> ax.get_legend_handles_labels()[1]
    ['rank correlation +1.00']
    """
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(weight):
        raise ValueError(f"labels must lie in 0 … {len(weight) - 1}, got {int(labels.min())} … {int(labels.max())}")
    counts = torch.bincount(labels.cpu(), minlength=len(weight))
    norms = weight.detach().double().cpu().norm(dim=1)
    figure, ax = axes(ax)
    text = f"rank correlation {correlate_ranks(counts.double(), norms):+.2f}"
    ax.scatter(counts.numpy(), norms.numpy(), s=14, color=color(0), alpha=0.7, linewidths=0, label=text)
    tidy(ax, title=title, xlabel="training samples of the class", ylabel="‖w‖ of the class")
    ax.legend(frameon=False)
    return figure, ax


def plot_class_biases(bias: Float[Tensor, " classes"], *, title: str = "", ax: Any = None) -> tuple[Any, Any]:
    """Draw the bias of each class of a classifier, and return ``(fig, ax)`` (fig. A.3 of Liu, 2020).

    Biases near 0 have little effect and can be removed. The decision then depends only on angles and norms.

    Args:
        bias: Biases of the classifier.
        title: Title of the chart.
        ax: Axes to draw on; None makes a new figure.

    >>> fig, ax = plot_class_biases(torch.tensor([0.01, -0.02, 0.0]))
    >>> ax.get_xlabel(), len(ax.lines[0].get_ydata())
    ('class', 3)
    """
    figure, ax = axes(ax, size=(6.4, 3.2))
    ax.plot(range(len(bias)), bias.detach().double().cpu().numpy(), ".", markersize=4, color=color(0))
    ax.axhline(0, color="0.85", linewidth=0.8, zorder=0)
    tidy(ax, title=title, xlabel="class", ylabel="bias")
    return figure, ax


def correlate_ranks(x: Float[Tensor, " n"], y: Float[Tensor, " n"]) -> float:
    """Return Spearman's rank correlation, with mean ranks for ties; NaN if an argument is constant.

    >>> round(correlate_ranks(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([9.0, 7.0, 5.0])), 6)
    -1.0
    """
    return float(torch.corrcoef(torch.stack([_compute_mean_ranks(x), _compute_mean_ranks(y)]))[0, 1])


def _compute_mean_ranks(x: Tensor) -> Tensor:
    _, index, counts = x.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts - 1) / 2)[index]
