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
    r"""P learned to preserve the angles between neurons, L_P = mean_{i≠j} (θ(ŵ_i, ŵ_j) − θ(Pŵ_i, Pŵ_j))²  (eq. 6.6).

    The bases are initially random and are redrawn every ``every`` steps. Every ``update`` steps (10 in Liu (2020), 6.6.1)
    P takes ``inner_steps`` steps P ← P − η∂L_P/∂P. If layers share a basis, L_P is the mean over these layers.

    Args:
        dim, count, every, seed: As in :class:`RandomProjection`.
        mode: ``"unrolled"``: the energy is computed with P after its steps and differentiated through them, which takes
            second derivatives; Liu (2020) uses this form (6.6.1). ``"alternating"``: the energy is computed with P itself.
        lr: η. Liu (2020) gives no value. At 30, one step decreases L_P of a random basis by half for neurons of 27
            dimensions and by 1 % for 2304 dimensions.
        update: Number of training steps between the updates of P.
        inner_steps: Number of steps of gradient descent on L_P in each update and, in unrolled mode, before each energy.
        preserve: ``"cosine"`` compares cosines in place of angles, as Liu (2020) does for convenience; ``"angle"``
            compares angles.

    >>> AnglePreservingProjection(inner_steps=2)
    AnglePreservingProjection(dim=30, count=1, every=1000, mode='unrolled', lr=30, update=10, inner_steps=2, preserve='cosine')
    """

    arguments = ("dim", "count", "every", "mode", "lr", "update", "inner_steps", "preserve")

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
        """Return the neurons projected by P, in unrolled mode by P after its steps."""
        if self.mode == "alternating":
            return super().views(weights)
        stepped: dict[str, Tensor] = {}
        for buffer, layers in self._group_by_basis().items():
            stepped[buffer] = self._unroll_step(
                [weights[name] for name in layers], self.basis(layers[0], weights[layers[0]]), unrolled=True
            )
        return {name: [project(weight, stepped[self._names[name]["basis"]])] for name, weight in weights.items()}

    def step(self, weights: dict[str, Tensor], energy: Energy) -> None:
        """Update P if it is due, then redraw the bases if they are due."""
        if (self.steps + 1) % self.update == 0:
            for buffer, layers in self._group_by_basis().items():
                detached = [weights[name].detach() for name in layers]
                basis = self.basis(layers[0], detached[0])
                self.get_buffer(buffer).copy_(self._unroll_step(detached, basis, unrolled=False))
        super().step(weights, energy)

    def loss(self, weights: list[Tensor], basis: Float[Tensor, "count k d"]) -> Float[Tensor, ""]:
        """Return L_P of the layers that share a basis, the mean over bases, pairs and layers."""
        if self.preserve == "cosine":
            return cosine_loss(weights, basis)
        losses = []
        for weight in weights:
            n = weight.shape[1]
            before, after = _compute_angles(weight), _compute_angles(project(weight, basis))
            losses.append(
                (before - after).square().mean() * (n / (n - 1))
            )  # the entries of the diagonal are 0 and are not pairs
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
        """Return the names of the layers by the name of their basis."""
        groups: dict[str, list[str]] = {}
        for layer, parts in self._names.items():
            groups.setdefault(parts["basis"], []).append(layer)
        return groups


def _compute_angles(points: Tensor) -> Tensor:
    x = normalize(points)
    return arccos(x @ x.mT)
