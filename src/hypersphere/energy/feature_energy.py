"""Energies of features as losses: any kernel, and the global orthogonal regularization of descriptors."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..collectives import gather_rows_with_gradient, is_distributed
from ..geometry import accumulation_dtype, disable_autocast, normalize
from .hyperspherical import as_neurons, mean_energies
from .kernels import Kernel, Riesz

MIN_NORM = 1e-4
"""Shorter features get the gradient of a feature of this length, as in the losses over pairs."""


class FeatureEnergy(nn.Module):
    r"""A uniformity loss with any kernel: the mean of φ(‖x̂_i − x̂_j‖²) over all pairs of features i ≠ j of a batch.

    ``FeatureEnergy(Gaussian(2), log=True)`` is the uniformity of Wang and Isola (2020). :class:`Heat`, :class:`MMD` and
    :class:`KernelStein` compare the features with the uniform distribution on the sphere. Combine it with a loss that
    pulls positive pairs together, such as :func:`alignment`.

    Args:
        kernel: The kernel φ; None is ``Riesz(2)``, the default for neurons.
        log: Whether to return the logarithm of the mean, for kernels that are positive everywhere.
        gather: Whether to treat the batches of all processes as one batch if torch.distributed is running.

    >>> FeatureEnergy(hs.energy.Gaussian(2), log=True)(torch.eye(3))
    tensor(-4.0000)
    """

    def __init__(self, kernel: Kernel | None = None, log: bool = False, gather: bool = True):
        super().__init__()
        if kernel is not None and not isinstance(kernel, Kernel):
            raise ValueError(f"kernel must be a Kernel object, such as Heat(), got {kernel!r}")
        self.kernel, self.log, self.gather = Riesz(2) if kernel is None else kernel, log, gather

    def forward(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"] | None = None) -> Float[Tensor, ""]:
        """Compute the energy of a batch in float32 or better; 0 with zero gradients for fewer than two features.

        Args:
            features: The features; only their directions matter.
            labels: Ignored. Training passes them to every loss.
        """
        rows = _gather(features, self.gather)
        if len(rows) < 2:
            return 0 * rows.sum()
        mean = mean_energies(as_neurons(rows).unsqueeze(0), self.kernel).squeeze(0)
        return mean.log() if self.log else mean

    def extra_repr(self) -> str:
        """Return the kernel."""
        return f"kernel={self.kernel!r}, log={self.log}"


class GlobalOrthogonalRegularization(nn.Module):
    r"""Global orthogonal regularization, M₁² + max(0, M₂ − 1/d): makes non-matching features as orthogonal as random ones.

    Zhang et al. (2017, arXiv:1708.06320). M₁ and M₂ are the means of cos θ and cos² θ over non-matching pairs. Uniform
    directions have exactly M₁ = 0 and M₂ = 1/d in every dimension. Both moments are computed from Σx̂ and Σx̂x̂ᵀ, per class
    if labels are given, so no matrix of pairs is formed. The regularization constrains only two moments, so use it in
    addition to another loss. For the neurons of layers use :func:`global_orthogonal_regularization`.

    Args:
        mean_weight: Factor of M₁²; 1 in Zhang et al.
        moment_weight: Factor of max(0, M₂ − 1/d); 1 in Zhang et al.
        gather: Whether to treat the batches of all processes as one batch if torch.distributed is running.

    >>> GlobalOrthogonalRegularization()(torch.eye(4)), GlobalOrthogonalRegularization()(torch.ones(3, 4))
    (tensor(0.), tensor(1.7500))
    """

    def __init__(self, mean_weight: float = 1.0, moment_weight: float = 1.0, gather: bool = True):
        super().__init__()
        for name, value in (("mean_weight", mean_weight), ("moment_weight", moment_weight)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a finite number ≥ 0, got {value!r}")
        self.mean_weight, self.moment_weight, self.gather = float(mean_weight), float(moment_weight), gather

    def forward(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"] | None = None) -> Float[Tensor, ""]:
        """Compute the regularization of a batch in float32 or better; 0 with zero gradients if there is no pair.

        Args:
            features: The features; only their directions matter.
            labels: Pairs with equal labels match and are excluded. Without labels no two samples match.
        """
        rows = _gather(features, self.gather)
        groups = None if labels is None else _gather(labels, self.gather)
        first, second = average_cosines(rows, groups)
        return self.mean_weight * first.square() + self.moment_weight * (second - 1 / rows.shape[1]).clamp_min(0)

    def extra_repr(self) -> str:
        """Return the weights."""
        return f"mean_weight={self.mean_weight:g}, moment_weight={self.moment_weight:g}"


def global_orthogonal_regularization(weight: Float[Tensor, "neurons *dim"]) -> Float[Tensor, ""]:
    r"""Return M₁² + max(0, M₂ − 1/d) of the neurons of a layer, as a measure for :class:`Penalty`.

    Args:
        weight: Neurons in rows.

    Returns:
        A scalar ≥ 0; 0 for orthogonal neurons.

    >>> hs.energy.Penalty(torch.nn.Linear(4, 6), global_orthogonal_regularization, hidden=1.0, classifier=False)().ndim
    0
    """
    rows = as_neurons(weight)
    first, second = average_cosines(rows, None)
    return first.square() + (second - 1 / rows.shape[1]).clamp_min(0)


def average_cosines(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"] | None
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the means of cos θ and cos² θ over ordered pairs of samples with different labels.

    Over all pairs, Σ_{i,j} cos θ_ij = ‖Σx̂_i‖² and Σ_{i,j} cos² θ_ij = ‖Σx̂_ix̂_iᵀ‖². The same sums over each class are
    subtracted.

    Args:
        features: The features.
        labels: Class of each feature; None if all classes are different.

    Returns:
        Both means; 0 if there is no pair.
    """
    work = features.to(accumulation_dtype(features))
    with disable_autocast(work.device.type):
        x = normalize(work, min_norm=MIN_NORM)
        if labels is None:  # each class has one sample, and its only pair is the sample with itself
            self_cosines = x.square().sum(1)
            pairs, first, second = len(x), self_cosines.sum(), self_cosines.square().sum()
        else:
            classes = [x[labels == c] for c in labels.unique()]
            pairs = sum(len(rows) ** 2 for rows in classes)
            first = torch.stack([rows.sum(0).square().sum() for rows in classes]).sum()
            second = torch.stack([(rows.T @ rows).square().sum() for rows in classes]).sum()
        count = max(len(x) ** 2 - pairs, 1)
        return (x.sum(0).square().sum() - first) / count, ((x.T @ x).square().sum() - second) / count


def _gather(rows: Tensor, gather: bool) -> Tensor:
    """Return the rows of all processes if ``gather``, otherwise the given rows."""
    return gather_rows_with_gradient(rows).rows if gather and is_distributed() else rows
