"""Measures of how uniformly directions are distributed, other than the energy. Smaller values are more uniform.

Each measure is a function of a weight matrix. :class:`Penalty` turns it into a regularizer. :func:`alignment` is the
counterpart of :func:`uniformity` for pairs of features.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import accumulation_dtype, angle, disable_autocast, normalize, uniform
from ..geometry.fast_norms import directions, directions_backward
from .gram_blocks import wide_dtype
from .hyperspherical import as_neurons, mean_energies
from .kernels import Gaussian, Riesz
from .lbfgs import lbfgs
from .neighbors import nearest_pairs
from .pair_sums import CHUNK_ENTRIES


def maximum_separation(weight: Float[Tensor, "neurons *dim"]) -> Float[Tensor, ""]:
    r"""Return −min_{i≠j} ‖ŵ_i − ŵ_j‖², the negative squared distance of the nearest pair.

    Only the nearest pair has a gradient.

    Args:
        weight: Neurons in rows.

    Returns:
        A scalar in [−4, 0].

    >>> maximum_separation(torch.eye(3))
    tensor(-2.)
    """
    rows = as_neurons(weight)
    i, j = nearest_pairs(rows, 1)[0][0]
    x, y = normalize(rows[i].to(wide_dtype(rows))), normalize(rows[j].to(wide_dtype(rows)))
    return -(x - y).square().sum().to(_result_dtype(rows))


def polarization(
    weight: Float[Tensor, "neurons *dim"], s: float = 2, probes: int = 16, seed: int = 0
) -> Float[Tensor, ""]:
    r"""Return −min_u (1/N)·Σ_i f_s(‖u − ŵ_i‖), the negative of the lowest potential on the sphere.

    Minimizing it moves neurons towards the point u where the potential is lowest.

    Args:
        weight: Neurons in rows.
        s: Power of the Riesz kernel.
        probes: Number of random starts of the search for u by L-BFGS.
        seed: Seed of the random starts.

    Returns:
        A scalar.

    >>> polarization(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))  # the potential is lowest at (0, ±1)
    tensor(-0.5000)
    """
    kernel, rows = Riesz(s), as_neurons(weight)
    x = normalize(rows.to(wide_dtype(rows)))
    fixed = x.detach()

    def potential(u: Tensor) -> tuple[Tensor, Tensor]:
        unit, lengths = directions(u)
        q = (2 - 2 * unit @ fixed.T).clamp_min(kernel.floor**2)
        pull = -2 * kernel.slope(q) @ fixed / len(fixed)
        return kernel.value(q).mean(1), directions_backward(pull, unit, lengths)

    with torch.no_grad():
        start = uniform(probes, x.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(x)
        points, values = lbfgs(potential, start, steps=60, tolerance=1e-8)
        lowest = normalize(points[values.argmin()])
    # By the envelope theorem the derivative of a minimum over u is the derivative at the minimizing u, held fixed.
    return -kernel(2 - 2 * x @ lowest).mean().to(_result_dtype(rows))


def gram_log_determinant(
    weight: Float[Tensor, "neurons *dim"], t: float = 1.0, ridge: float = 1e-6
) -> Float[Tensor, ""]:
    r"""Return −(1/N)·log det(K + ridge·I) with K_ij = exp(−t‖ŵ_i − ŵ_j‖²).

    The value is 0 if all neurons are far apart, and large if some nearly coincide.

    Args:
        weight: Neurons in rows.
        t: Sharpness of the Gaussian kernel, > 0.
        ridge: Number > 0 that keeps the value finite for duplicates.

    Returns:
        A scalar.

    Raises:
        ValueError: If ``t`` or ``ridge`` is not positive.

    >>> gram_log_determinant(torch.eye(2)) < gram_log_determinant(torch.tensor([[1.0, 0.0], [1.0, 0.1]]))
    tensor(True)
    """
    kernel, rows = Gaussian(t), as_neurons(weight)
    if not ridge > 0:
        raise ValueError(f"ridge must be a number > 0, got {ridge!r}")
    with disable_autocast(rows.device.type):
        x = normalize(rows.to(wide_dtype(rows)))
        gram = kernel.value(2 - 2 * x @ x.T) + ridge * torch.eye(len(x), dtype=x.dtype, device=x.device)
        factor = torch.linalg.cholesky(gram)
        return (-2 * factor.diagonal().log().mean()).to(_result_dtype(rows))


def uniformity(weight: Float[Tensor, "neurons *dim"], t: float = 2.0) -> Float[Tensor, ""]:
    r"""Return log mean_{i≠j} exp(−t‖ŵ_i − ŵ_j‖²), the logarithm of the mean Gaussian potential.

    This is the uniformity of features in Wang and Isola (2020), who use t = 2.

    Args:
        weight: Neurons or features in rows.
        t: Sharpness of the Gaussian kernel, > 0.

    Returns:
        A scalar in [−4t, 0].

    >>> uniformity(torch.eye(3))
    tensor(-4.0000)
    """
    return mean_energies(as_neurons(weight).unsqueeze(0), Gaussian(t)).squeeze(0).log()


def alignment(x: Float[Tensor, "pairs dim"], y: Float[Tensor, "pairs dim"], alpha: float = 2.0) -> Float[Tensor, ""]:
    r"""Return mean_i ‖x̂_i − ŷ_i‖^α over positive pairs.

    Args:
        x: First feature of each pair.
        y: Second feature of each pair.
        alpha: The power, > 0; Wang and Isola (2020) use 2.

    Returns:
        A scalar ≥ 0.

    Raises:
        ValueError: If the shapes differ or ``alpha`` is not positive.

    >>> alignment(torch.eye(2), torch.eye(2).flip(0))
    tensor(2.)
    """
    if x.shape != y.shape:
        raise ValueError(f"x and y must have the same shape, got {tuple(x.shape)} and {tuple(y.shape)}")
    if not alpha > 0:
        raise ValueError(f"alpha must be a number > 0, got {alpha!r}")
    work = _result_dtype(x)
    square = (normalize(x.to(work)) - normalize(y.to(work))).square().sum(-1)
    # A power below 2 has an infinite slope at 0. Equal features get the gradient 0 instead.
    return torch.where(square > 0, torch.where(square > 0, square, 1) ** (alpha / 2), 0).mean()


def kernel_discrepancy(weight: Float[Tensor, "neurons *dim"]) -> Float[Tensor, ""]:
    r"""Return L₂(W) = (1/n²)·Σ_{i,j} k(w_i, w_j)² − E[k(u, v)²] with k(u, v) = ½ − θ(u, v)/2π  (lemma 14, F.4).

    u and v are uniform on the sphere. In d dimensions the mean of k² is 1/16 + trigamma(d/2)/8π², because the variance
    of the angle is trigamma(d/2)/2. A smaller L₂(W) gives a larger lower bound on the smallest singular value of the
    derivative of a network with one hidden layer, and so a smaller training error wherever the gradient is small. The
    sum includes i = j. It is computed in chunks of rows and is differentiable.

    Args:
        weight: Neurons in rows.

    Returns:
        A scalar, near 0 for uniform directions.

    >>> random = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))
    >>> bool(kernel_discrepancy(random).abs() < 1e-3), round(kernel_discrepancy(torch.ones(9, 3)).item(), 4)
    (True, 0.1757)
    """
    rows = as_neurons(weight)
    x = rows.to(_result_dtype(rows))
    n, chunk = len(x), max(1, CHUNK_ENTRIES // len(x))
    with disable_autocast(x.device.type):
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for start in range(0, n, chunk):
            theta = angle(x[start : start + chunk], x, pairwise=True)
            total = total + (0.5 - theta / (2 * math.pi)).square().sum()
        trigamma = torch.polygamma(1, torch.tensor(x.shape[1] / 2, dtype=torch.float64)).item()
        return total / n**2 - (1 / 16 + trigamma / (8 * math.pi**2))


def _result_dtype(x: Tensor) -> torch.dtype:
    return accumulation_dtype(x)
