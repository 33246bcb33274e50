"""Optimizers that keep every weight on a sphere of fixed norm, around any other optimizer: Hyperball and MuonSphere."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from ..config import Call, Kind, call
from .matrix_optimizer import as_matrices, as_weight
from .muon import Muon

OptimizerCall: TypeAlias = Annotated[
    Call, Kind(Optimizer, ("hypersphere.orthogonal", "torch.optim"), given=("params",))
]
BaseOptimizer: TypeAlias = OptimizerCall | Callable[..., Optimizer]


class SphereOptimizer(Optimizer, ABC):
    r"""W ← R·N(W + ηR·N(ΔW)), where ΔW is the step of another optimizer and N divides by the norm of a matrix.

    The step of the other optimizer gives the direction only; its length is ηR, with η the learning rate of the group, so a
    weight turns by about η radians. Weight decay has no meaning. Parameters with fewer than two dimensions take the other
    optimizer's own step. A filter of a convolution is flattened; groups may say ``parts`` and ``transposed``, as
    :func:`group_matrices` does. A step holds one more copy of the weights for a moment.
    """

    def __init__(self, params: Iterable[Any], base: Any, radius: float | None):
        if radius is not None and not 0 < radius < float("inf"):
            raise ValueError(f"radius must be a finite number > 0, or None for the present norms, got {radius!r}")
        made = base.build(params=params) if isinstance(base, Call) else base(params)
        if not isinstance(made, Optimizer):
            raise ValueError(f"base must make an optimizer from parameters, got a {type(made).__name__}")
        super().__init__(made.param_groups, made.defaults)
        self.base, self.radius = made, radius
        self._share()
        self.radii: list[list[Tensor | None]] = [self._place(group) for group in self.param_groups]

    @staticmethod
    @abstractmethod
    def measure(matrices: Float[Tensor, "parts neurons numbers"]) -> Float[Tensor, "parts 1 1"]:
        """Return the norm of each matrix."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to both optimizers and put its weights on their spheres."""
        if "base" not in self.__dict__:  # while the groups of the other optimizer are taken over
            super().add_param_group(param_group)
            return
        self.base.add_param_group(param_group)
        self.radii.append(self._place(self.param_groups[-1]))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Make one step of the other optimizer and bring every weight back to its sphere."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        before = [
            [
                p.clone() if radius is not None and p.grad is not None else None
                for p, radius in zip(group["params"], radii, strict=True)
            ]
            for group, radii in zip(self.param_groups, self.radii, strict=True)
        ]
        self.base.step()
        for group, radii, olds in zip(self.param_groups, self.radii, before, strict=True):
            for p, radius, old in zip(group["params"], radii, olds, strict=True):
                if old is not None and radius is not None:
                    self._turn(p, old, radius, group)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the other optimizer and the radii."""
        return {**self.base.state_dict(), "radii": self.radii}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state of :meth:`state_dict`."""
        state = dict(state_dict)
        radii = state.pop("radii")
        self.base.load_state_dict(state)
        self._share()
        self.radii = [
            [None if radius is None else radius.to(p.device) for p, radius in zip(group["params"], held, strict=True)]
            for group, held in zip(self.param_groups, radii, strict=True)
        ]

    def _turn(self, p: Tensor, old: Tensor, radius: Tensor, group: dict[str, Any]) -> None:
        layout = {"parts": group.get("parts", 1), "transposed": group.get("transposed", False)}
        start, change = as_matrices(old, layout), as_matrices(p, layout) - as_matrices(old, layout)
        length = self.measure(change)
        moved = start + group["lr"] * radius * change / torch.where(length > 0, length, 1)
        p.copy_(as_weight(moved * (radius / self.measure(moved)), p, layout))

    @torch.no_grad()
    def _place(self, group: dict[str, Any]) -> list[Tensor | None]:
        """Return the radius of each weight of a group, None for those without a sphere, and put weights on given ones."""
        radii: list[Tensor | None] = []
        for p in group["params"]:
            if p.ndim < 2:
                radii.append(None)
                continue
            if group.get("weight_decay", 0):
                raise ValueError(
                    f"weight_decay must be 0, because the norms are fixed, got {group['weight_decay']!r} in a group "
                    "with weights"
                )
            layout = {"parts": group.get("parts", 1), "transposed": group.get("transposed", False)}
            matrices = as_matrices(p, layout)
            norm = self.measure(matrices)
            if not bool((norm > 0).all()):
                raise ValueError(
                    f"a weight of shape {tuple(p.shape)} is zero, so it is on no sphere: give it to another optimizer"
                )
            if self.radius is not None:
                p.copy_(as_weight(matrices * (self.radius / norm), p, layout))
                norm = torch.full_like(norm, self.radius)
            radii.append(norm)
        return radii

    def _share(self) -> None:
        """Let both optimizers have the same groups and state, so that schedules act on both."""
        self.param_groups, self.state = self.base.param_groups, self.base.state


class Hyperball(SphereOptimizer):
    r"""A wrapper that fixes the Frobenius norm of every weight and of every step (Wen et al., arXiv:2606.16899).

    Use it instead of weight decay: the learning rate is then an angle, which needs no new choice for another width. With
    :class:`Muon` inside it is MuonH, with Adam AdamH.

    Args:
        params: parameters, or groups of them.
        base: makes the optimizer inside from parameters: a setting, a class or a ``functools.partial``. By default Adam.
            Its ``lr`` is the angle of a step in radians.
        radius: the norm of every weight; None keeps the norm that each has now, as the authors do.

    Raises:
        ValueError: if a weight is zero, if the inner optimizer has weight decay, or if ``radius`` is not positive.

    >>> layer = torch.nn.Linear(6, 4)
    >>> before = layer.weight.norm()
    >>> import functools
    >>> optimizer = Hyperball(layer.parameters(), functools.partial(torch.optim.Adam, lr=0.1))
    >>> layer(torch.ones(2, 6)).square().sum().backward()
    >>> optimizer.step()
    >>> torch.allclose(layer.weight.norm(), before)
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        base: BaseOptimizer = call(torch.optim.Adam, lr=0.01),  # noqa: B008
        *,
        radius: float | None = None,
    ):
        super().__init__(params, base, radius)

    @staticmethod
    def measure(matrices: Float[Tensor, "parts neurons numbers"]) -> Float[Tensor, "parts 1 1"]:
        """Return the Frobenius norms."""
        return torch.linalg.matrix_norm(matrices, keepdim=True)


class MuonSphere(SphereOptimizer):
    r"""A wrapper that fixes the largest singular value of every weight and of every step (Xie et al., arXiv:2601.08393).

    Use it with :class:`Muon` inside, the default, where activations must not grow or shrink during training. The authors'
    MuonSphere takes R = c·√(neurons/numbers); here R is the present norm unless it is given. Norms are exact, by singular
    values, where the authors iterate.

    Args:
        params: weights, or groups of them, such as the matrices of :func:`group_matrices`.
        base: makes the optimizer inside, as in :class:`Hyperball`. By default Muon without weight decay.
        radius: the largest singular value of every weight; None keeps that which each has now.

    Raises:
        ValueError: if a weight is zero, if the inner optimizer has weight decay, or if ``radius`` is not positive.

    >>> layer = torch.nn.Linear(6, 4, bias=False)
    >>> optimizer = MuonSphere(layer.parameters(), radius=1.0)
    >>> layer(torch.ones(2, 6)).square().sum().backward()
    >>> optimizer.step()
    >>> torch.allclose(torch.linalg.matrix_norm(layer.weight, 2), torch.tensor(1.0))
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        base: BaseOptimizer = call(Muon, lr=0.01, weight_decay=0.0),  # noqa: B008
        *,
        radius: float | None = None,
    ):
        super().__init__(params, base, radius)

    @staticmethod
    def measure(matrices: Float[Tensor, "parts neurons numbers"]) -> Float[Tensor, "parts 1 1"]:
        """Return the largest singular values."""
        return torch.linalg.matrix_norm(matrices, ord=2, keepdim=True)
