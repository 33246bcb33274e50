"""Wrappers of optimizers that keep every weight on a sphere of fixed norm: Hyperball and MuonSphere."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from ..config import Call, Kind, call
from .matrix_optimizer import as_matrices, as_weight, evaluate_closure
from .muon import Muon

OptimizerCall: TypeAlias = Annotated[
    Call, Kind(Optimizer, ("hypersphere.orthogonal", "torch.optim"), given=("params",))
]
BaseOptimizer: TypeAlias = OptimizerCall | Callable[..., Optimizer]


class SphereOptimizer(Optimizer, ABC):
    r"""W ← R·N(W + ηR·N(ΔW)), where ΔW is the step of the base optimizer and N divides a matrix by its norm.

    The base optimizer determines only the direction of the step. Its length is ηR with the learning rate η of the group,
    so a weight rotates by about η radians. Weight decay would have no effect. Parameters with fewer than two dimensions
    take the unchanged step of the base optimizer. Filters of convolutions are flattened. Parameter groups may set
    ``parts`` and ``transposed``, as :func:`group_matrices` does. During a step, a second copy of the weights is held.
    """

    def __init__(self, params: Iterable[Any], base: Any, radius: float | None):
        if radius is not None and not 0 < radius < float("inf"):
            raise ValueError(f"radius must be a finite number > 0, or None for the current norms, got {radius!r}")
        optimizer = base.build(params=params) if isinstance(base, Call) else base(params)
        if not isinstance(optimizer, Optimizer):
            raise ValueError(f"base must make an optimizer from parameters, got a {type(optimizer).__name__}")
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.base, self.radius = optimizer, radius
        self._share_state()
        self.radii: list[list[Tensor | None]] = [self._place_on_spheres(group) for group in self.param_groups]

    @staticmethod
    @abstractmethod
    def measure(matrices: Float[Tensor, "parts neurons numbers"]) -> Float[Tensor, "parts 1 1"]:
        """Return the norm of each matrix."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group to both optimizers and project its weights onto their spheres."""
        if "base" not in self.__dict__:  # called by the constructor with the groups of the base optimizer
            super().add_param_group(param_group)
            return
        self.base.add_param_group(param_group)
        self.radii.append(self._place_on_spheres(self.param_groups[-1]))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Make one step of the base optimizer and return every weight to its sphere."""
        loss = evaluate_closure(closure)
        weights_before = [
            [
                p.clone() if radius is not None and p.grad is not None else None
                for p, radius in zip(group["params"], radii, strict=True)
            ]
            for group, radii in zip(self.param_groups, self.radii, strict=True)
        ]
        self.base.step()
        for group, radii, old_weights in zip(self.param_groups, self.radii, weights_before, strict=True):
            for p, radius, old in zip(group["params"], radii, old_weights, strict=True):
                if old is not None and radius is not None:
                    self._rotate_weight(p, old, radius, group)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the base optimizer and the radii."""
        return {**self.base.state_dict(), "radii": self.radii}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state returned by :meth:`state_dict`."""
        state = dict(state_dict)
        radii = state.pop("radii")
        self.base.load_state_dict(state)
        self._share_state()
        self.radii = [
            [None if radius is None else radius.to(p.device) for p, radius in zip(group["params"], held, strict=True)]
            for group, held in zip(self.param_groups, radii, strict=True)
        ]

    def _rotate_weight(self, p: Tensor, old: Tensor, radius: Tensor, group: dict[str, Any]) -> None:
        layout = {"parts": group.get("parts", 1), "transposed": group.get("transposed", False)}
        start, change = as_matrices(old, layout), as_matrices(p, layout) - as_matrices(old, layout)
        length = self.measure(change)
        moved = start + group["lr"] * radius * change / torch.where(length > 0, length, 1)
        p.copy_(as_weight(moved * (radius / self.measure(moved)), p, layout))

    @torch.no_grad()
    def _place_on_spheres(self, group: dict[str, Any]) -> list[Tensor | None]:
        """Project the weights of a group onto spheres of the given radius; return the radius per weight, None for vectors."""
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
                    f"a weight of shape {tuple(p.shape)} is zero, so it is on no sphere: pass it to another optimizer"
                )
            if self.radius is not None:
                p.copy_(as_weight(matrices * (self.radius / norm), p, layout))
                norm = torch.full_like(norm, self.radius)
            radii.append(norm)
        return radii

    def _share_state(self) -> None:
        """Share the groups and the state of the base optimizer, so that learning rate schedules act on both."""
        self.param_groups, self.state = self.base.param_groups, self.base.state


class Hyperball(SphereOptimizer):
    r"""A wrapper that fixes the Frobenius norm of every weight and of every step (Wen et al., arXiv:2606.16899).

    Use it instead of weight decay. The learning rate is then an angle and transfers between network widths. With
    :class:`Muon` as the base optimizer it is MuonH, with Adam it is AdamH.

    Args:
        params: Parameters, or parameter groups.
        base: Creates the base optimizer from the parameters: a setting, a class or a ``functools.partial``. The default is
            Adam. Its ``lr`` is the angle of a step in radians.
        radius: Norm of every weight. None keeps the current norm of each weight, as the authors do.

    Raises:
        ValueError: If a weight is zero, the base optimizer has weight decay, or ``radius`` is not positive.

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

    Use it with the default base optimizer, :class:`Muon`, if activations must not grow or shrink during training. The
    authors' MuonSphere sets R = c·√(m/n) for m neurons of dimension n; here R is the current norm unless it is given. The
    norms are computed exactly from singular values; the authors iterate.

    Args:
        params: Weights, or parameter groups such as the matrices of :func:`group_matrices`.
        base: Creates the base optimizer, as in :class:`Hyperball`. The default is Muon without weight decay.
        radius: Largest singular value of every weight. None keeps the current value of each weight.

    Raises:
        ValueError: If a weight is zero, the base optimizer has weight decay, or ``radius`` is not positive.

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
