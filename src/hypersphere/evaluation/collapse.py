"""Measures of neural collapse: how close features and classifier are to a simplex with one vertex per class (NC1–NC4)."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .. import plots
from ..geometry import cosine, norm
from .figures import Figure, Report


def neural_collapse(
    features: Float[Tensor, "n d"],
    labels: Shaped[Tensor, "..."],
    weight: Float[Tensor, "c d"] | None = None,
    bias: Float[Tensor, "c"] | None = None,
) -> "CollapseReport":
    r"""Compute the four measures of neural collapse in float64; all are 0 at complete collapse.

    With class means μ_c, their mean μ_G, M with rows μ_c − μ_G, within-class covariance Σ_W and Σ_B = MᵀM/C:

    - NC1 = tr(Σ_W Σ_B⁺)/C (variability);
    - NC2 norms = std/mean of ‖μ_c − μ_G‖, and NC2 angles = mean of |cos + 1/(C − 1)| over pairs of classes (simplex);
    - NC3 = ‖W/‖W‖_F − M/‖M‖_F‖_F² (self-duality);
    - NC4 = the share of features for which the classifier and the nearest class mean predict different classes.

    Args:
        features: Features ``(n, d)``.
        labels: Class of each feature, integers.
        weight: Weight of the classifier, needed for NC3 and NC4.
        bias: Bias of the classifier.

    >>> simplex = torch.eye(3) - 1 / 3
    >>> report = neural_collapse(simplex.repeat(4, 1), torch.arange(3).repeat(4), weight=simplex)
    >>> [round(v, 6) for v in (report.nc1, report.nc2_norms, report.nc2_angles, report.nc3, report.nc4)]
    [0.0, 0.0, 0.0, 0.0, 0.0]
    """
    if labels.shape != features.shape[:1] or labels.is_floating_point():
        raise ValueError(
            f"labels must be an integer for each of {len(features)} features, got {labels.dtype} {tuple(labels.shape)}"
        )
    if not features.isfinite().all():
        raise ValueError("features must be finite, got NaN or infinity")
    classes, owner = labels.unique(return_inverse=True)
    count = len(classes)
    if count < 2:
        raise ValueError(f"labels must name at least two classes, got {count}")
    x = features.detach().double()
    means = x.new_zeros(count, x.shape[1]).index_add_(0, owner, x) / owner.bincount()[:, None]
    deviations, centered = x - means[owner], means - means.mean(0)
    # tr(Σ_W Σ_B⁺) without forming Σ_W: project the within-class deviations onto the eigenvectors of Σ_B.
    values, vectors = torch.linalg.eigh(centered.T @ centered / count)
    kept = values > values[-1] * 1e-10
    nc1 = ((deviations @ vectors[:, kept]).square().mean(0) / values[kept]).sum().item() / count
    lengths = norm(centered)
    off = ~torch.eye(count, dtype=torch.bool, device=x.device)
    nc2 = (cosine(centered, centered, pairwise=True)[off] + 1 / (count - 1)).abs().mean().item()
    nc3, nc4 = _compare_classifier(x, means, centered, classes, weight, bias)
    return CollapseReport(nc1, (lengths.std(correction=0) / lengths.mean()).item(), nc2, nc3, nc4)


@dataclass(frozen=True, repr=False)
class CollapseReport(Report):
    """The result of :func:`neural_collapse`; ``nc3`` and ``nc4`` are None without a classifier.

    >>> report = neural_collapse(torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4))
    >>> list(report.numbers()), report.nc3 is None
    (['NC1', 'NC2 norms', 'NC2 angles'], True)
    """

    nc1: float
    nc2_norms: float
    nc2_angles: float
    nc3: float | None
    nc4: float | None
    title = "neural collapse"

    def figures(self) -> list[Figure]:
        """Return all computed measures. NC4 is a share of the features; NC1, NC2 norms and NC3 have no unit."""
        values = [
            ("NC1", self.nc1, ""),
            ("NC2 norms", self.nc2_norms, ""),
            ("NC2 angles", self.nc2_angles, "cosine"),
            ("NC3", self.nc3, ""),
            ("NC4", self.nc4, "fraction"),
        ]
        return [Figure(name, value, unit) for name, value, unit in values if value is not None]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw one bar per measure."""
        values = {name: float(value) for name, value in self.numbers().items()}
        return plots.plot_bars(values, xlabel="distance from collapse (0 is complete)", title=self.title, ax=ax)


def _compare_classifier(
    x: Tensor, means: Tensor, centered: Tensor, classes: Tensor, weight: Tensor | None, bias: Tensor | None
) -> tuple[float | None, float | None]:
    """Return NC3 and NC4, or None without a classifier."""
    if weight is None:
        return None, None
    if weight.shape[1] != x.shape[1] or not 0 <= int(classes.min()) <= int(classes.max()) < len(weight):
        raise ValueError(
            f"weight must have a row of length {x.shape[1]} for each label, got shape {tuple(weight.shape)}"
        )
    w = weight.detach().double()
    rows = w[classes]
    nc3 = (rows / torch.linalg.norm(rows) - centered / torch.linalg.norm(centered)).square().sum().item()
    predicted = (x @ w.T + (0 if bias is None else bias.detach().double())).argmax(1)
    nearest = classes[torch.cdist(x, means).argmin(1)]
    return nc3, (predicted != nearest).double().mean().item()
