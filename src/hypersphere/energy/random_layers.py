"""The energy of random directions without drawing any: its mean and its spread, by quadrature."""

import functools
import math
from typing import NamedTuple

import numpy as np
import torch

from .kernels import Kernel

NODES = 600


class RandomEnergy(NamedTuple):
    """Mean and standard deviation of the mean energy of a random layer."""

    mean: float
    std: float


def random_energy(neurons: int, dim: int, kernel: Kernel, half_space: bool = False) -> RandomEnergy:
    r"""Mean and standard deviation of the mean energy of N directions drawn uniformly from the sphere in ``dim`` dimensions.

    The angle between two such directions has the density sin^{d−2}θ/∫sin^{d−2}, and the angles of two different pairs
    are independent, also when the pairs share a neuron. So the mean is E φ(2 − 2cos θ), and the variance of the mean
    over N(N − 1)/2 pairs is Var φ divided by their number. Both integrals are taken by Gauss–Legendre quadrature. In
    half space φ(q) + φ(4 − q) takes the place of φ, and the N pairs of opposite points are part of the mean.

    The kernel's floor makes every integral finite, but where d ≤ 2s + 1 the variance is carried by pairs that a layer
    hardly ever has; the standard deviation is infinite there.

    >>> random_energy(100, 64, hs.energy.Riesz(2)).mean  # E 1/(2 − 2cos θ) = (d − 2)/(2(d − 3))
    0.508196721311...
    """
    if neurons < 2 or dim < 2:
        raise ValueError(f"neurons and dim must be integers ≥ 2, got {neurons!r} and {dim!r}")
    # Nearly all of the density lies within a few 1/√d of π/2.
    reach = min(math.pi / 2, 14 / math.sqrt(dim))
    nodes, weights = _legendre()
    theta = math.pi / 2 + reach * nodes
    density = weights * np.exp((dim - 2) * np.log(np.sin(theta)))
    density /= density.sum()
    q = torch.from_numpy(4 * np.sin(theta / 2) ** 2)
    value = kernel(q) + kernel(4 - q) if half_space else kernel(q)
    values = value.numpy()
    mean = float((density * values).sum())
    variance = float((density * (values - mean) ** 2).sum()) / (neurons * (neurons - 1) / 2)
    std = math.sqrt(variance) if dim > 2 * _power(kernel) + 1 else math.inf
    if not half_space:
        return RandomEnergy(mean, std)
    own = float(kernel(torch.tensor(4.0, dtype=torch.float64)))
    share = (neurons - 1) / (2 * neurons - 1)  # of the ordered pairs of 2N points that are not opposite, two by two
    return RandomEnergy(own / (2 * neurons - 1) + mean * share, std * share)


@functools.lru_cache(maxsize=1)
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(NODES)


def _power(kernel: Kernel) -> float:
    """The power with which φ grows as two points meet; 0 for one that stays bounded."""
    return float(getattr(kernel, "s", 0.0))
