"""Orthogonality-preserving gradient descent (7.3.5)."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..geometry import accumulation_dtype, disable_autocast
from .maps.newton_schulz import polish
from .matrix_optimizer import evaluate_closure
from .parametrization import LearnedMatrix


class OGD(Optimizer):
    r"""Gradient descent on the orthogonal group: U ← (I + λ/2·W)⁻¹(I − λ/2·W)U (eq. 7.5 with −∇f, so that it descends).

    W = Ŵ − Ŵᵀ with Ŵ = MUᵀ − ½U(UᵀMUᵀ), where M is the gradient plus ``momentum`` times the direction WU of the last
    step. By default, the fixed-point iteration of eq. 7.6 approximates the Cayley step: Y ← U − λ/2·W(U + Y), starting
    from Y = U − λWU. After n iterations the error has order λ^{n+2}; with two iterations, U drifts from orthogonality by
    (λ‖W‖)⁴/4 per step. The iteration converges only for small steps, so λ is limited to min(lr, 1/‖W‖₁), where ‖W‖₁ is
    the largest column sum, as in the Cayley SGD of Li, Li and Todorovic (2020). Weight decay would have no effect,
    because ‖U‖ is constant.

    Args:
        params: Square matrices ``(…, n, n)``, orthogonal at the start. Take them from :func:`group_parameters` and train
            the other parameters with any other optimizer.
        lr: Learning rate λ. Liu (2020) gives no value. The authors' code uses 0.02, with 0.1 for the other parameters, and
            multiplies it by 0.2 when it divides the other learning rate by ten. OGD at 4λ makes the same steps as
            ``method="cayley"`` at λ: near the identity both move R along G − Gᵀ, OGD by λ/2 and Cayley by 2λ.
        momentum: Weight of the last direction. Liu (2020) gives no value; the authors' code uses 0.9.
        iterations: Number of fixed-point iterations. Liu (2020) finds two sufficient.
        exact: Whether to solve eq. 7.5 exactly instead, for any λ.
        reproject_every: Number of steps after which U is replaced by the nearest orthogonal matrix; 0 disables this.

    >>> u = torch.nn.Parameter(torch.eye(2))
    >>> target = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> optimizer = OGD([u], lr=0.1, exact=True)
    >>> for _ in range(100):
    ...     optimizer.zero_grad()
    ...     (u - target).square().sum().backward()
    ...     optimizer.step()
    >>> (u.detach() - target).abs().max().item() < 1e-3
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.02,
        momentum: float = 0.9,
        *,
        iterations: int = 2,
        exact: bool = False,
        reproject_every: int = 0,
    ):
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "iterations": iterations,
            "exact": exact,
            "reproject_every": reproject_every,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group after checking its parameters and options."""
        group = {**self.defaults, **param_group}
        for name, is_valid in {"lr": group["lr"] >= 0, "momentum": 0 <= group["momentum"] < 1}.items():
            if not is_valid:
                raise ValueError(f"{name} must be {'≥ 0' if name == 'lr' else 'in [0, 1)'}, got {group[name]!r}")
        if group["iterations"] < 1 or group["reproject_every"] < 0:
            values = f"{group['iterations']!r} and {group['reproject_every']!r}"
            raise ValueError(f"iterations must be ≥ 1 and reproject_every ≥ 0, got {values}")
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if p.ndim < 2 or p.shape[-1] != p.shape[-2]:
                raise ValueError(f"params must be square matrices (…, n, n), got shape {tuple(p.shape)}")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        loss = evaluate_closure(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)
        return loss

    def _update(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state, momentum = self.state[p], group["momentum"]
        state["step"] = state.get("step", 0) + 1
        with disable_autocast(p.device.type):
            u = p.to(accumulation_dtype(p))
            direction = gradient.to(u.dtype)
            if momentum and "momentum_buffer" in state:
                direction = direction + momentum * state["momentum_buffer"]
            w = _compute_generator(u, direction)
            if momentum:
                state["momentum_buffer"] = w @ u
            result = (
                _solve_exact_step(u, w, group["lr"])
                if group["exact"]
                else _iterate_fixed_point(u, w, group["lr"], group["iterations"])
            )
            if group["reproject_every"] and state["step"] % group["reproject_every"] == 0:
                result = polish(result, 2)
            p.copy_(result)


class ParamGroups(NamedTuple):
    """Parameters for :class:`OGD` (``rotations``) and for any other optimizer (``others``).

    >>> groups = group_parameters(hs.orthogonal.overparameterize(torch.nn.Linear(4, 2), "ogd"))
    >>> optimizers = OGD(groups.rotations, lr=0.02), torch.optim.SGD(groups.others, lr=0.1)
    """

    rotations: list[nn.Parameter]
    others: list[nn.Parameter]


def group_parameters(model: nn.Module) -> ParamGroups:
    """Divide the trainable parameters into the R of layers with ``method="ogd"`` and all others.

    >>> from hypersphere.orthogonal import overparameterize
    >>> rotations, others = group_parameters(overparameterize(torch.nn.Linear(4, 2), "ogd"))
    >>> [tuple(p.shape) for p in rotations], [tuple(p.shape) for p in others]
    ([(4, 4)], [(2,)])
    """
    rotations = [
        m.raw
        for m in model.modules()
        if isinstance(m, LearnedMatrix) and getattr(m.map, "by", None) == "ogd" and m.raw.requires_grad
    ]
    rotation_ids = {id(p) for p in rotations}
    return ParamGroups(rotations, [p for p in model.parameters() if p.requires_grad and id(p) not in rotation_ids])


def _compute_generator(u: Tensor, m: Tensor) -> Tensor:
    """Return W = Ŵ − Ŵᵀ with Ŵ = MUᵀ − ½U(UᵀMUᵀ)."""
    mu = m @ u.mT
    w_hat = mu - 0.5 * (u @ (u.mT @ mu))
    return w_hat - w_hat.mT


def _solve_exact_step(u: Tensor, w: Tensor, lr: float) -> Tensor:
    eye = torch.eye(u.shape[-1], dtype=u.dtype, device=u.device)
    return torch.linalg.solve(eye + lr / 2 * w, u - lr / 2 * (w @ u))


def _iterate_fixed_point(u: Tensor, w: Tensor, lr: float, iterations: int) -> Tensor:
    norm = w.abs().sum(-2).amax(-1)[..., None, None]
    step = torch.where(lr * norm > 1, 1 / norm, lr)
    y = u - step * (w @ u)
    for _ in range(iterations):
        y = u - step / 2 * (w @ (u + y))
    return y
