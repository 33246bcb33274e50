"""Adversarial projection (6.3.5)."""

import torch
from torch import Tensor

from ...geometry import norm, normalize
from .projection import Energy
from .random import RandomProjection


class AdversarialProjection(RandomProjection):
    r"""min_W max_P of the projected energy  (eq. 6.8): P maximizes the energy that the neurons minimize.

    Each :meth:`step` moves every basis along its gradient by ``lr`` times the length of the basis. The step is relative,
    because the energy does not depend on the length of P and its gradient decreases as P becomes longer. Liu (2020) does
    not specify the step and calls the optimization unstable.

    >>> AdversarialProjection(dim=20)
    AdversarialProjection(dim=20, count=1, every=1000, lr=0.01)
    """

    direction: float = 1.0
    """1 maximizes the energy, −1 minimizes it."""

    arguments = ("dim", "count", "every", "lr")

    def __init__(self, dim: int = 30, count: int = 1, every: int | None = 1000, *, lr: float = 0.01, seed: int = 0):
        super().__init__(dim, count, every, seed=seed)
        if not lr > 0:
            raise ValueError(f"lr must be a number > 0, got {lr!r}")
        self.lr = lr

    def step(self, weights: dict[str, Tensor], energy: Energy) -> None:
        """Move every basis along its gradient, then advance the schedule."""
        bases = [buffer for name, buffer in self.named_buffers() if name in self._sizes]
        if not bases:  # there is no hidden layer to regularize
            return super().step(weights, energy)
        detached = {name: w.detach() for name, w in weights.items()}
        for basis in bases:
            basis.requires_grad_()
        with torch.enable_grad():
            values = self.energies(detached, energy).values()
            total = torch.stack([value.to(bases[0].device) for value in values]).sum()
            gradients = torch.autograd.grad(total, bases)
        for basis, gradient in zip(bases, gradients, strict=True):
            basis.requires_grad_(False)
            length = norm(basis.flatten(1))[:, None, None]
            basis.add_(self.direction * self.lr * length * normalize(gradient.flatten(1)).view_as(gradient))
        super().step(weights, energy)
