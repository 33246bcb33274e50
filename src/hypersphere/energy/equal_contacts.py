"""The exact end of Tammes' problem: an interior-point method that makes the touching pairs touch to the last digits."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..geometry import normalize

SLACK = 1e-3  # what the bound t starts above the largest cosine: the change that is expected of a relaxed start
LONGEST = 0.2  # radians a point may move in one step


@torch.no_grad()
def equalize(
    points: Float[Tensor, "batch n dim"], half_space: bool = False, *, steps: int = 40, damping: float = 1e-3
) -> Float[Tensor, "batch n dim"]:
    r"""Solve min t subject to x_i·x_j ≤ t for all pairs, from each row of a batch; the best points met on the way.

    In half space −x_i·x_j ≤ t is demanded too. Each step is a primal–dual Newton step on the conditions of optimality,
    Σ λ_ij ∇(x_i·x_j) = 0, Σ λ_ij = 1 and λ_ij·(t − x_i·x_j) = μ, with μ chosen by Mehrotra's predictor and driven to 0.
    Which pairs touch need not be known: their λ stays positive. ``damping`` holds points that no pair holds, and those
    on which the pairs have no first-order effect. A row ends where λ and the slack leave nothing to gain, or after ``steps``.

    >>> square = normalize(torch.tensor([[[1.0, 0.1], [0.0, 1.0], [-1.0, 0.0], [0.2, -1.0]]], dtype=torch.float64))
    >>> x = equalize(square)[0]
    >>> (x @ x.T - torch.eye(4)).max().abs() < 1e-12
    tensor(True)
    """
    best, value = points.clone(), largest_cosine(points, half_space)
    state = _Start(points, half_space, damping)
    rows = torch.arange(len(points), device=points.device)
    for _ in range(steps):
        gap = state.step()
        reached = largest_cosine(state.x, half_space)
        better = reached < value[rows]
        best[rows[better]], value[rows[better]] = state.x[better], reached[better]
        going = (gap > 1e-15) & reached.isfinite()
        if not going.all():
            rows = rows[going]
            state.keep(going)
        if len(rows) == 0:
            break
    return best


def largest_cosine(points: Float[Tensor, "batch n dim"], half_space: bool) -> Float[Tensor, " batch"]:
    """max_{i≠j} x_i·x_j of each row, or of |x_i·x_j| in half space."""
    cos = points @ points.mT
    cos = cos.abs() if half_space else cos
    cos.diagonal(dim1=1, dim2=2).fill_(-1)
    return cos.flatten(1).amax(1)


def tangent_bases(points: Float[Tensor, "batch n dim"]) -> Float[Tensor, "batch n dim less"]:
    """Orthonormal columns perpendicular to each point: a reflection that takes the last axis to ∓x, without that axis."""
    last = points[..., -1:]
    v = points.clone()
    v[..., -1:] += torch.where(last < 0, -1.0, 1.0).to(points.dtype)
    dim = points.shape[-1]
    reflection = torch.eye(dim, dtype=points.dtype, device=points.device) - (
        v.unsqueeze(-1) * v.unsqueeze(-2) / (1 + last.abs()).unsqueeze(-1)
    )
    return reflection[..., :-1]


class _Start:
    """The unknowns of a batch of rows: points x, bound t, slack z and multipliers λ of the ordered pairs, of each sign."""

    def __init__(self, points: Tensor, half_space: bool, damping: float):
        self.x, self.damping = points, damping
        n = points.shape[1]
        signs = [1.0, -1.0] if half_space else [1.0]
        self.signs = torch.tensor(signs, dtype=points.dtype, device=points.device)[:, None, None]
        self.same: Bool[Tensor, "n n"] = torch.eye(n, dtype=torch.bool, device=points.device)
        self.t = largest_cosine(points, half_space) + SLACK
        self.z = self._slack().masked_fill(self.same, 1)
        weight = (1 / self.z).masked_fill(self.same, 0)
        self.multiplier = weight / weight.sum((1, 2, 3), keepdim=True)

    def keep(self, rows: Bool[Tensor, " batch"]) -> None:
        self.x, self.t, self.z, self.multiplier = self.x[rows], self.t[rows], self.z[rows], self.multiplier[rows]

    def step(self) -> Float[Tensor, " batch"]:
        """Move all rows; Σ λ·z, which bounds what is left to gain."""
        system = _Newton(self)
        pairs = self.signs.numel() * self.same.numel() - self.signs.numel() * len(self.same)
        gap = (self.multiplier * self.z).sum((1, 2, 3))
        _, _, dz, dm = system.solve(torch.zeros_like(gap))
        ahead = (self.multiplier + _wide(_longest(self.multiplier, dm, self.same).clamp_max(1)) * dm) * (
            self.z + _wide(_longest(self.z, dz, self.same).clamp_max(1)) * dz
        )
        centering = (ahead.masked_fill(self.same, 0).sum((1, 2, 3)) / gap).pow(3).clamp(1e-8, 1)
        move, dt, dz, dm = system.solve(centering * gap / pairs)
        size = torch.linalg.vector_norm(move, dim=2).amax(1)
        primal = torch.minimum(0.995 * _longest(self.z, dz, self.same), LONGEST / size).clamp_max(1)
        dual = (0.995 * _longest(self.multiplier, dm, self.same)).clamp_max(1)
        self.x = normalize(self.x + primal[:, None, None] * move)
        self.t = self.t + primal * dt
        self.z = (self.z + _wide(primal) * dz).masked_fill(self.same, 1)
        self.multiplier = self.multiplier + _wide(dual) * dm
        return (self.multiplier * self.z).sum((1, 2, 3))

    def _slack(self) -> Tensor:
        return _wide(self.t) - self.signs * (self.x @ self.x.mT)[:, None]


class _Newton:
    """The linear system of one step, reduced to the points' tangent coordinates and factorised once for two right sides."""

    def __init__(self, state: _Start):
        self.state = state
        x, same = state.x, state.same
        batch, n, dim = x.shape
        self.bases = tangent_bases(x)
        self.slope = torch.einsum("bjd,bida->bija", x, self.bases)  # of x_i·x_j by the coordinates of x_i
        self.residual = (state.z - state._slack()).masked_fill(same, 0)
        self.weight = (state.multiplier / state.z).masked_fill(same, 0)
        weighted = 2 * self.weight.sum(1)[..., None] * self.slope  # 2: a pair is counted in both orders
        matrix = weighted.transpose(2, 3)[..., None] * self.slope.transpose(1, 2)[:, :, None]
        i = torch.arange(n, device=x.device)
        matrix[:, i, :, i] += (weighted.mT @ self.slope).transpose(0, 1)
        matrix = matrix.reshape(batch, n * (dim - 1), n * (dim - 1))
        matrix.diagonal(dim1=1, dim2=2).add_(state.damping)
        self.factor = torch.linalg.cholesky_ex(matrix).L
        self.by_bound = self._pull(self.weight)
        self.by_bound_solved = torch.cholesky_solve(self.by_bound.unsqueeze(2), self.factor).squeeze(2)

    def _pull(self, force: Tensor) -> Tensor:
        """Jᵀ·force, in tangent coordinates."""
        return 2 * ((self.state.signs * force).sum(1).unsqueeze(2) @ self.slope).flatten(1)

    def solve(self, target: Float[Tensor, " batch"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The step of x, t, z and λ towards λ·z = target."""
        state, (batch, n, dim) = self.state, self.state.x.shape
        force = (_wide(target) / state.z + self.weight * self.residual).masked_fill(state.same, 0)
        free = torch.cholesky_solve(-self._pull(force).unsqueeze(2), self.factor).squeeze(2)
        missing = 1 - force.sum((1, 2, 3)) - (self.by_bound * free).sum(1)
        dt = missing / ((self.by_bound * self.by_bound_solved).sum(1) - self.weight.sum((1, 2, 3)))
        coordinates = (free + dt[:, None] * self.by_bound_solved).view(batch, n, 1, dim - 1)
        one_sided = (self.slope * coordinates).sum(3)
        dz = _wide(dt) - self.residual - state.signs * (one_sided + one_sided.mT)[:, None]
        dm = ((_wide(target) - state.multiplier * (state.z + dz)) / state.z).masked_fill(state.same, 0)
        return (self.bases * coordinates).sum(3), dt, dz, dm


def _wide(rows: Float[Tensor, " batch"]) -> Float[Tensor, "batch 1 1 1"]:
    return rows[:, None, None, None]


def _longest(value: Tensor, step: Tensor, same: Tensor) -> Float[Tensor, " batch"]:
    """The multiple of the step at which the first positive value becomes 0."""
    reach = torch.where((step < 0) & ~same, -value / step, torch.inf)
    return reach.flatten(1).amin(1)
