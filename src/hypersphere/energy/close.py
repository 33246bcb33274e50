"""Pairs of neurons that are nearly parallel: their distance is taken from the difference, in float64.

A Gram matrix in float32 knows 2 − 2cos θ to about 2·10⁻⁷, which for neurons 10⁻⁴ apart is twenty times the number itself.
"""

import torch
from torch import Tensor

from ..geometry.directions import directions
from .kernels import Kernel

ENTRIES = 1 << 20  # of the differences formed at a time


def wide(x: Tensor) -> torch.dtype:
    """float64, or float32 on a device that has none."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def closeness(x: Tensor) -> float:
    """The squared distance below which the Gram matrix of this dtype is not trusted: it is right to 10⁻⁴ or better above.

    >>> closeness(torch.ones(1)), closeness(torch.ones(1, dtype=torch.float64))
    (0.01, 1e-06)
    """
    return 1e-6 if x.dtype == torch.float64 else 1e-2


class ClosePairs:
    """Adds the energy of listed pairs, and its gradient by the directions, to the sums of a pass."""

    def __init__(self, kernel: Kernel, half_space: bool, weight: Tensor, grad: Tensor | None, beta: Tensor | None):
        self.kernel, self.half_space, self.weight, self.grad, self.beta = kernel, half_space, weight, grad, beta

    def add(self, total: Tensor, b: Tensor, i: Tensor, j: Tensor, sign: Tensor, times: Tensor) -> None:
        """Pairs (i, j) of matrix b, nearly parallel (sign 1) or antiparallel (−1), each counted ``times``."""
        step = max(1, ENTRIES // self.weight.shape[2])
        for start in range(0, len(b), step):
            part = slice(start, start + step)
            self._add(total, b[part], i[part], j[part], sign[part].to(total.dtype), times[part].to(total.dtype))

    def _add(self, total: Tensor, b: Tensor, i: Tensor, j: Tensor, sign: Tensor, times: Tensor) -> None:
        beta_i, beta_j = (torch.ones_like(sign) if self.beta is None else self.beta.to(sign.dtype)[k] for k in (i, j))
        difference = beta_i[:, None] * self._direction(b, i) - (sign * beta_j)[:, None] * self._direction(b, j)
        small = difference.square().sum(1)
        large = 2 * (beta_i.square() + beta_j.square()) - small
        q, opposite = torch.where(sign > 0, small, large), torch.where(sign > 0, large, small)
        value, slope = self.kernel(q), self._slope(q)
        if self.half_space:
            value, slope = value + self.kernel(opposite), slope - self._slope(opposite)
        total.index_add_(0, b, value * times)
        if self.grad is not None:
            pull = (2 * sign * slope * times)[:, None] * difference  # dq = sign·d‖difference‖²
            n = self.weight.shape[1]
            flat = self.grad.view(-1, self.grad.shape[2])
            flat.index_add_(0, b * n + i, (beta_i[:, None] * pull).to(flat.dtype))
            flat.index_add_(0, b * n + j, (-(sign * beta_j)[:, None] * pull).to(flat.dtype))

    def _direction(self, b: Tensor, i: Tensor) -> Tensor:
        return directions(self.weight[b, i].to(wide(self.weight)))[0]

    def _slope(self, q: Tensor) -> Tensor:
        return self.kernel.slope(q.clamp_min(self.kernel.floor**2))
