"""How far the neurons are from uniform as a kernel sees them: L₂(W) of lemma 14 (F.4)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import angle
from .hyperspherical import as_neurons
from .pair_sums import ENTRIES


def kernel_discrepancy(weight: Float[Tensor, "neurons *dim"]) -> Float[Tensor, ""]:
    r"""L₂(W) = (1/n²)·Σ_{i,j} k(w_i, w_j)² − E[k(u, v)²], k(u, v) = ½ − θ(u, v)/2π  (lemma 14).

    u and v are uniform on the sphere; their k² has the mean 1/16 + trigamma(d/2)/8π² in d dimensions, because the
    variance of the angle is trigamma(d/2)/2. The smaller L₂(W), the larger the bound below on the least singular value of
    the derivative of a network with one hidden layer, and the smaller its training error where the gradient is small.
    The sum includes i = j. Computed in chunks of rows; differentiable.

    >>> random = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))
    >>> bool(kernel_discrepancy(random).abs() < 1e-3), round(kernel_discrepancy(torch.ones(9, 3)).item(), 4)
    (True, 0.1757)
    """
    rows = as_neurons(weight)
    x = rows.to(torch.promote_types(rows.dtype, torch.float32))
    n, chunk = len(x), max(1, ENTRIES // len(x))
    with torch.autocast(x.device.type, enabled=False):
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for start in range(0, n, chunk):
            theta = angle(x[start : start + chunk], x, pairwise=True)
            total = total + (0.5 - theta / (2 * math.pi)).square().sum()
        trigamma = torch.polygamma(1, torch.tensor(x.shape[1] / 2, dtype=torch.float64)).item()
        return total / n**2 - (1 / 16 + trigamma / (8 * math.pi**2))
