"""L-BFGS for batches: each row is a separate minimization."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Objective: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]  # (batch, m) → values (batch,), gradients (batch, m)

MEMORY = 12  # previous steps that approximate the Hessian


def lbfgs(
    objective: Objective,
    start: Float[Tensor, "batch m"],
    *,
    tolerance: float = 1e-9,
    steps: int = 1000,
) -> tuple[Float[Tensor, "batch m"], Float[Tensor, " batch"]]:
    """Minimize each row; return the final points and their values.

    A row has converged when its largest gradient entry is below ``tolerance`` times its value, or when rounding leaves no
    step along the search direction that decreases its value.

    Args:
        objective: Function that returns the value and the gradient of each row.
        start: Starting point of each row.
        tolerance: Largest gradient entry at convergence, relative to the value.
        steps: Maximum number of steps.

    >>> x, f = lbfgs(lambda x: ((x - 3).square().sum(1), 2 * (x - 3)), torch.zeros(2, 4))
    >>> x[0], f.max() < 1e-9
    (tensor([3., 3., 3., 3.]), tensor(True))
    """
    x = start.clone()
    f, g = objective(x)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    active = g.abs().amax(1) > tolerance * f.abs()
    for _ in range(steps):
        if not active.any():
            break
        direction = -_apply_inverse_hessian(g, pairs)
        descent = (direction * g).sum(1)
        uphill = descent >= 0
        direction = torch.where(uphill[:, None], -g, direction)
        descent = torch.where(uphill, -g.square().sum(1), descent)
        if not pairs:  # without curvature information, limit the first step to a hundredth of the point's norm
            length = 0.01 * x.norm(dim=1).clamp_min(1) / direction.norm(dim=1).clamp_min(torch.finfo(x.dtype).tiny)
            direction, descent = direction * length[:, None], descent * length
        new_x, new_f, new_g, moved = _search_line(objective, x, f, g, direction, descent, active)
        s, y = new_x - x, new_g - g
        curvature = (s * y).sum(1)
        useful = moved & (curvature > 1e-12 * s.norm(dim=1) * y.norm(dim=1))
        pairs.append((s, y, torch.where(useful, 1 / torch.where(useful, curvature, 1), 0)))
        del pairs[:-MEMORY]
        x, f, g = new_x, new_f, new_g
        active = active & moved & (g.abs().amax(1) > tolerance * f.abs())
    return x, f


def _apply_inverse_hessian(g: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Return H⁻¹g by the two-loop recursion over the pairs (s, y, ρ). A pair with ρ = 0 has no effect."""
    q, alphas = g, []
    for s, y, rho in reversed(pairs):
        alpha = rho * (s * q).sum(1)
        q = q - alpha[:, None] * y
        alphas.append(alpha)
    if pairs:
        s, y, rho = pairs[-1]
        gamma = torch.where(rho > 0, 1 / (rho * y.square().sum(1)).clamp_min(torch.finfo(g.dtype).tiny), 1)
        q = q * gamma[:, None]
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        q = q + (alpha - rho * (y * q).sum(1))[:, None] * s
    return q


def _search_line(
    objective: Objective,
    x: Tensor,
    f: Tensor,
    g: Tensor,
    direction: Tensor,
    descent: Tensor,
    active: Bool[Tensor, " batch"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Halve the step of each row until its value decreases enough (Armijo). Rows without such a step do not move."""
    new_x, new_f, new_g = x.clone(), f.clone(), g.clone()
    waiting, step = active.nonzero().flatten(), 1.0
    moved = torch.zeros_like(active)
    for _ in range(12):
        trial = x[waiting] + step * direction[waiting]
        value, slope = objective(trial)
        good = (value <= f[waiting] + 1e-4 * step * descent[waiting]) & (value < f[waiting])
        done = waiting[good]
        new_x[done], new_f[done], new_g[done], moved[done] = trial[good], value[good], slope[good], True
        waiting, step = waiting[~good], step / 2
        if len(waiting) == 0:
            break
    return new_x, new_f, new_g, moved
