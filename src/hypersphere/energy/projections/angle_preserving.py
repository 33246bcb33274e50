"""Angle-preserving projection (6.3.4)."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry import arccos, normalize
from .cosine_step import cosine_loss, cosine_step
from .projection import Energy
from .random import RandomProjection, project


class AnglePreservingProjection(RandomProjection):
    r"""P learned to keep the angles between neurons, L_P = mean_{i≠j} (θ(ŵ_i, ŵ_j) − θ(Pŵ_i, Pŵ_j))²  (eq. 6.6).

    The bases start random, one by default, and are redrawn every ``every`` steps. Every ``update`` steps (10 in Liu
    (2020), 6.6.1) P takes ``inner_steps`` steps P ← P − η∂L_P/∂P. Layers that share a basis share L_P, the mean over
    them.

    Args:
        dim, count, every, seed: as in :class:`RandomProjection`.
        mode: ``"unrolled"``: the energy is that at P after its steps, differentiated through them, which takes second
            derivatives; the form that Liu (2020) uses (6.6.1). ``"alternating"``: the energy is that at P itself.
        lr: η. Liu (2020) gives none; at 30 one step lowers the L_P of a random basis by half for neurons of 27
            dimensions, by 1 % for 2304.
        update: training steps between the updates of P.
        inner_steps: steps of gradient descent on L_P in each update and, unrolled, before each energy.
        preserve: ``"cosine"`` compares cosines in place of angles, as Liu (2020) does for convenience; ``"angle"``
            compares angles.

    >>> AnglePreservingProjection(inner_steps=2)
    AnglePreservingProjection(dim=30, count=1, every=1000, mode='unrolled', lr=30, update=10, inner_steps=2, preserve='cosine')
    """

    def __init__(
        self,
        dim: int = 30,
        count: int = 1,
        every: int | None = 1000,
        mode: Literal["alternating", "unrolled"] = "unrolled",
        *,
        lr: float = 30.0,
        update: int = 10,
        inner_steps: int = 1,
        preserve: Literal["cosine", "angle"] = "cosine",
        seed: int = 0,
    ):
        super().__init__(dim, count, every, seed=seed)
        if mode not in ("alternating", "unrolled"):
            raise ValueError(f'mode must be "alternating" or "unrolled", got {mode!r}')
        if preserve not in ("cosine", "angle"):
            raise ValueError(f'preserve must be "cosine" or "angle", got {preserve!r}')
        if not lr > 0:
            raise ValueError(f"lr must be a number > 0, got {lr!r}")
        for name, value in (("update", update), ("inner_steps", inner_steps)):
            if value < 1:
                raise ValueError(f"{name} must be a number of steps ≥ 1, got {value!r}")
        self.mode, self.lr, self.update, self.inner_steps, self.preserve = mode, lr, update, inner_steps, preserve

    def views(self, weights: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        """Return the neurons projected by P, or by P after its step."""
        if self.mode == "alternating":
            return super().views(weights)
        stepped: dict[str, Tensor] = {}
        for buffer, layers in self._group_by_basis().items():
            stepped[buffer] = self._unroll_step(
                [weights[name] for name in layers], self.basis(layers[0], weights[layers[0]]), unrolled=True
            )
        return {name: [project(weight, stepped[self._names[name]["basis"]])] for name, weight in weights.items()}

    def step(self, weights: dict[str, Tensor], energy: Energy) -> None:
        """Advance; move P where an update is due, before any redraw."""
        if (self.steps + 1) % self.update == 0:
            for buffer, layers in self._group_by_basis().items():
                own = [weights[name].detach() for name in layers]
                self.get_buffer(buffer).copy_(self._unroll_step(own, self.basis(layers[0], own[0]), unrolled=False))
        super().step(weights, energy)

    def loss(self, weights: list[Tensor], basis: Float[Tensor, "count k d"]) -> Float[Tensor, ""]:
        """Return L_P of layers that share a basis: the mean over bases, pairs and layers."""
        if self.preserve == "cosine":
            return cosine_loss(weights, basis)
        losses = []
        for weight in weights:
            n = weight.shape[1]
            before, after = _angles(weight), _angles(project(weight, basis))
            losses.append((before - after).square().mean() * (n / (n - 1)))  # the diagonal is 0 and not a pair
        return torch.stack(losses).mean()

    def _unroll_step(self, weights: list[Tensor], basis: Tensor, unrolled: bool) -> Tensor:
        weights = [w.to(basis.dtype) for w in weights]
        if self.preserve == "cosine":
            for _ in range(self.inner_steps):
                basis = cosine_step(basis, weights, self.lr)
            return basis
        with torch.enable_grad():
            basis = basis.detach().requires_grad_()
            for _ in range(self.inner_steps):
                (gradient,) = torch.autograd.grad(self.loss(weights, basis), basis, create_graph=unrolled)
                basis = basis - self.lr * gradient
            return basis

    def _group_by_basis(self) -> dict[str, list[str]]:
        """Return the layers of each basis."""
        groups: dict[str, list[str]] = {}
        for layer, parts in self._names.items():
            groups.setdefault(parts["basis"], []).append(layer)
        return groups

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        own = f"mode={self.mode!r}, lr={self.lr:g}, update={self.update}, inner_steps={self.inner_steps}"
        return f"dim={self.dim}, count={self.count}, every={self.every}, {own}, preserve={self.preserve!r}"


def _angles(points: Tensor) -> Tensor:
    x = normalize(points)
    return arccos(x @ x.mT)
