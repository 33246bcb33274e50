"""Reference values for the energy of a layer: the energy of random directions, and a lower bound for any directions."""

import functools
import math
from typing import NamedTuple

import numpy as np
import torch

from .kernels import Kernel

QUADRATURE_NODES = 600


class RandomEnergy(NamedTuple):
    """Mean and standard deviation of the mean energy of random directions."""

    mean: float
    std: float


def random_energy(neurons: int, dim: int, kernel: Kernel, half_space: bool = False) -> RandomEnergy:
    r"""Return mean and standard deviation of the mean energy of N directions drawn uniformly from the sphere.

    No directions are drawn. The angle between two random directions has the density sin^{d−2}θ/∫sin^{d−2}, and the
    angles of two different pairs are independent, even if the pairs share a neuron. So the mean is E φ(2 − 2cos θ), and
    the variance of the mean over N(N − 1)/2 pairs is Var φ divided by their number. Both integrals are computed by
    Gauss–Legendre quadrature. In half space φ is replaced by φ(q) + φ(4 − q), and the N pairs of opposite points are
    part of the mean.

    The kernel's floor makes every integral finite. For d ≤ 2s + 1, however, the variance comes from pairs so close that
    a layer hardly ever has one, so the standard deviation is reported as infinite.

    Args:
        neurons: Number of directions N, ≥ 2.
        dim: Their dimension d, ≥ 2.
        kernel: The kernel φ.
        half_space: Whether the energy is that of the 2N points ±ŵ_i.

    Returns:
        The mean and the standard deviation.

    Raises:
        ValueError: If ``neurons`` or ``dim`` is below 2.

    >>> random_energy(100, 64, hs.energy.Riesz(2)).mean  # E 1/(2 − 2cos θ) = (d − 2)/(2(d − 3))
    0.508196721311...
    """
    if neurons < 2 or dim < 2:
        raise ValueError(f"neurons and dim must be integers ≥ 2, got {neurons!r} and {dim!r}")
    kernel = kernel.for_dimension(dim)
    # Nearly all of the density lies within a few 1/√d of π/2, so the nodes are placed there only.
    reach = min(math.pi / 2, 14 / math.sqrt(dim))
    nodes, weights = _compute_quadrature()
    theta = math.pi / 2 + reach * nodes
    density = weights * np.exp((dim - 2) * np.log(np.sin(theta)))
    density /= density.sum()
    q = torch.from_numpy(4 * np.sin(theta / 2) ** 2)
    value = kernel(q) + kernel(4 - q) if half_space else kernel(q)
    values = value.numpy()
    mean = float((density * values).sum())
    variance = float((density * (values - mean) ** 2).sum()) / (neurons * (neurons - 1) / 2)
    std = math.sqrt(variance) if dim > 2 * _get_power(kernel) + 1 else math.inf
    if not half_space:
        return RandomEnergy(mean, std)
    antipodal = float(kernel(torch.tensor(4.0, dtype=torch.float64)))
    share = (neurons - 1) / (2 * neurons - 1)  # of the pairs of the 2N points that are not opposite
    return RandomEnergy(antipodal / (2 * neurons - 1) + mean * share, std * share)


def energy_lower_bound(neurons: int, dim: int) -> float:
    r"""Return a lower bound on the mean hyperspherical energy (s = 2, full space) of any N directions in d dimensions.

    The mean of ⟨ŵ_i, ŵ_j⟩ over pairs is at least m₁ = −1/(N − 1), because ‖Σŵ_i‖² ≥ 0. The mean of ⟨ŵ_i, ŵ_j⟩² is at
    least m₂ = (N/d − 1)/(N − 1), because ‖Σŵ_iŵ_iᵀ‖² ≥ N²/d. The energy 1/(2 − 2t) has positive derivatives of every
    order in t = ⟨ŵ_i, ŵ_j⟩. So, among all distributions of t with these moments, the one on the two values −1 and
    α = 1 − (1 − m₂)/(1 + m₁) has the least energy. Up to d + 1 neurons the simplex is best, with energy (N − 1)/(2N).

    The simplex and ± an orthonormal basis (N = 2d) reach the bound. For more neurons it is close if d is large. In two
    or three dimensions many neurons stay clearly above it: for N = 20, d = 3 the solver finds 0.70, the bound is 0.57.

    Args:
        neurons: Number of directions N, ≥ 2.
        dim: Their dimension d, ≥ 2.

    Returns:
        The bound.

    Raises:
        ValueError: If ``neurons`` or ``dim`` is below 2.

    >>> energy_lower_bound(4, 3), energy_lower_bound(6, 3)  # tetrahedron and octahedron
    (0.375, 0.45)
    """
    if neurons < 2 or dim < 2:
        raise ValueError(f"neurons and dim must be integers ≥ 2, got {neurons!r} and {dim!r}")
    if neurons <= dim + 1:
        return (neurons - 1) / (2 * neurons)
    first, second = -1 / (neurons - 1), (neurons / dim - 1) / (neurons - 1)
    alpha = 1 - (1 - second) / (1 + first)
    share = (1 + first) / (1 + alpha)  # of pairs with cosine α; the others are opposite
    return (1 - share) / 4 + share / (2 - 2 * alpha)


@functools.lru_cache(maxsize=1)
def _compute_quadrature() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(QUADRATURE_NODES)


def _get_power(kernel: Kernel) -> float:
    """Return the power s with which φ grows as two points approach each other; 0 for a bounded kernel."""
    return float(getattr(kernel, "s", 0.0))
