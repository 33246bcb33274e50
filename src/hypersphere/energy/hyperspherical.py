"""Hyperspherical energy: how far from uniform the directions of a layer's neurons are."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .kernels import Distance, Kernel, choose_kernel
from .pair_sums import pair_sums


def hyperspherical_energy(
    weight: Float[Tensor, "neurons *dim"],
    s: float = 2,
    half_space: bool = False,
    distance: Distance = "euclidean",
    importance: Float[Tensor, " neurons"] | None = None,
    reduction: Literal["mean", "sum"] = "mean",
    *,
    kernel: Kernel | None = None,
    sample: int | None = None,
    generator: torch.Generator | None = None,
    chunk: int | None = None,
) -> Float[Tensor, ""]:
    r"""Return E_s = Σ_{i≠j} f_s(‖ŵ_i − ŵ_j‖), f_s(z) = z^{−s} for s > 0 and log(1/z) for s = 0  (eq. 5.1).

    Args:
        weight: Neurons in rows; further axes are flattened. Only directions matter, not lengths.
        s: Power of the kernel, any number ≥ 0; 2 is the usual choice of Liu (2020).
        half_space: Whether to use the energy of the 2N points ±ŵ_i (5.3.4). It needs only one N × N Gram matrix.
        distance: ``"euclidean"``, or ``"angular"`` for arccos(ŵ_i·ŵ_j) in place of the distance (eq. 5.5).
        importance: β, one constant weight per neuron, for the energy of the points β_i·ŵ_i (eq. D.10). Refused with
            kernels of the angle, because the angle does not depend on β.
        reduction: ``"mean"`` over the N(N − 1) ordered pairs, 2N(2N − 1) in half space (eq. 5.4), or their ``"sum"``.
        kernel: A kernel object in place of ``s`` and ``distance``.
        sample: Number of neurons in a random subset; the mean and the sum stay unbiased (5.3.6).
        generator: Generator of the random subset.
        chunk: Number of rows of the Gram matrix per block; memory is O(N·chunk).

    Below a floor on the distance, 10⁻⁶ or 10^{−32/(s+1)} if that is more, the kernel is continued by its tangent, so
    duplicates have a finite value and gradient. A zero row has no direction. It counts as orthogonal to all others and
    gets no gradient. The energy is computed in float32 or better, that of close pairs in float64.

    >>> hyperspherical_energy(torch.eye(3))
    tensor(0.5000)
    >>> hyperspherical_energy(torch.tensor([[3.0, 0.0], [-1.0, 0.0]]), s=1, reduction="sum")
    tensor(1.)
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction must be "mean" or "sum", got {reduction!r}')
    kernel, weight = choose_kernel(s, distance, kernel), as_neurons(weight)
    total = len(weight)
    _check_chunk(chunk)
    if importance is not None:
        importance = check_importance(importance, weight, kernel)
    if sample is not None:
        weight, importance = _draw_neurons(weight, importance, sample, generator)
    mean = mean_energies(
        weight.unsqueeze(0), kernel, half_space, importance=importance, population=total, chunk=chunk
    ).squeeze(0)
    points = 2 * total if half_space else total
    return mean if reduction == "mean" else mean * (points * (points - 1))


def class_energy(
    weight: Float[Tensor, "classes *dim"],
    labels: Int[Tensor, " samples"],
    s: float = 2,
    *,
    distance: Distance = "euclidean",
    kernel: Kernel | None = None,
    chunk: int | None = None,
) -> Float[Tensor, ""]:
    r"""Return the data-dependent energy of a classifier, 1/(m(N−1)) · Σ_i Σ_{j≠y_i} f_s(‖ŵ_{y_i} − ŵ_j‖)  (5.3.6).

    Only the classes of the batch are compared with all other classes, so the cost is at most m·N pairs for m labels. If
    all classes are equally likely as labels, the expectation is the mean energy of the classifier. For ``s``,
    ``distance`` and ``kernel`` see :func:`hyperspherical_energy`.

    >>> class_energy(torch.eye(4), torch.tensor([0, 0, 2]))
    tensor(0.5000)
    """
    kernel, weight = choose_kernel(s, distance, kernel), as_neurons(weight)
    _check_chunk(chunk)
    if labels.numel() == 0:
        raise ValueError("labels must have at least one entry, got none")
    return batch_energy(weight, labels, kernel, chunk=chunk)


def batch_energy(
    weight: Float[Tensor, "classes dim"],
    labels: Int[Tensor, " samples"],
    kernel: Kernel,
    *,
    importance: Float[Tensor, " classes"] | None = None,
    chunk: int | None = None,
) -> Float[Tensor, ""]:
    """Return :func:`class_energy` for any kernel, optionally with weights β of the classes."""
    n = len(weight)
    rows, counts = labels.unique(return_counts=True)
    if rows[0] < 0 or rows[-1] >= n:
        raise ValueError(f"labels must be in [0, {n - 1}], got values from {rows[0].item()} to {rows[-1].item()}")
    counts = counts.to(torch.float32)
    sums = pair_sums(weight.unsqueeze(0), kernel, importance=importance, rows=rows, counts=counts, chunk=chunk)
    return sums.squeeze(0) / (labels.numel() * (n - 1))


def mean_energies(
    weight: Float[Tensor, "batch neurons dim"],
    kernel: Kernel,
    half_space: bool = False,
    *,
    importance: Float[Tensor, " neurons"] | None = None,
    population: int | None = None,
    chunk: int | None = None,
) -> Float[Tensor, " batch"]:
    """Return the mean energy of each matrix of a batch over its ordered pairs.

    In half space the mean includes the N pairs (ŵ_i, −ŵ_i), whose energy is constant for unit neurons. If the rows are
    a sample, ``population`` is the total number of neurons N, which sets the share of these pairs.
    """
    n = weight.shape[1]
    sums, pairs = pair_sums(weight, kernel, half_space=half_space, importance=importance, chunk=chunk), n * (n - 1)
    if not half_space:
        return sums / pairs
    population = population or n
    lengths = sums.new_ones(()) if importance is None else importance.to(sums.dtype)
    antipodal = kernel.for_dimension(weight.shape[2]).value(4 * lengths.square()).mean()
    return torch.add(antipodal / (2 * population - 1), sums, alpha=(population - 1) / (pairs * (2 * population - 1)))


def as_neurons(weight: Float[Tensor, "neurons *dim"]) -> Float[Tensor, "neurons flat"]:
    """Return the flattened rows of a weight; refuse fewer than two rows, or rows without entries."""
    if weight.ndim < 2 or weight.shape[0] < 2 or weight.numel() == 0:
        raise ValueError(f"weight must hold at least two neurons in rows, (N, …), got shape {tuple(weight.shape)}")
    if not weight.is_floating_point():
        raise ValueError(f"weight must be a floating-point tensor, got {weight.dtype}")
    return weight.flatten(1)


def check_importance(importance: Tensor, weight: Tensor, kernel: Kernel) -> Tensor:
    """Return β without a gradient; refuse invalid values, and kernels of the angle, which ignore it."""
    if kernel.of_angle:
        raise ValueError('importance scales neurons, which angles ignore: use distance="euclidean"')
    if importance.shape != weight.shape[:1] or not (importance.isfinite() & (importance > 0)).all():
        raise ValueError(
            f"importance must hold one finite number > 0 for each of the {len(weight)} neurons, got {importance!r}"
        )
    return importance.detach()


def _draw_neurons(
    weight: Tensor, importance: Tensor | None, sample: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor | None]:
    if not 2 <= sample <= len(weight):
        raise ValueError(f"sample must be between 2 and the {len(weight)} neurons, got {sample!r}")
    device = weight.device if generator is None else generator.device
    chosen = torch.randperm(len(weight), generator=generator, device=device)[:sample].to(weight.device)
    return weight[chosen], None if importance is None else importance[chosen]


def _check_chunk(chunk: int | None) -> None:
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be a number of rows ≥ 1, got {chunk!r}")
