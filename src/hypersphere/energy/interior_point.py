"""An interior-point method for Tammes' problem. It equalizes the smallest angles up to rounding errors."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import normalize
from .point_symmetry import PointSymmetry, no_symmetry, self_entries

INITIAL_SLACK = 1e-3  # the bound t starts this much above the largest cosine: the expected change of a relaxed start
MAX_STEP_RADIANS = 0.2  # largest movement of a point in one step
MIN_STEPS_TO_PREDICT = 10  # after these steps, t and Σ λz predict the final value of a row
# Expected decrease of t as a share of Σ λz, which bounds it to first order. The share is 0.4 early and near 1 at the end.
EXPECTED_GAIN = 0.75


@torch.no_grad()
def minimize_largest_cosine(
    points: Float[Tensor, "batch m dim"],
    half_space: bool = False,
    *,
    steps: int = 40,
    damping: float = 1e-3,
    symmetry: PointSymmetry | None = None,
    hopeless: float = torch.inf,
) -> Float[Tensor, "batch m dim"]:
    r"""Solve min t subject to x_i·x_j ≤ t for all pairs, and return the best points found for each row of the batch.

    Half space adds the constraints −x_i·x_j ≤ t. Each step is a primal–dual Newton step for the optimality conditions
    Σ λ_ij ∇(x_i·x_j) = 0, Σ λ_ij = 1 and λ_ij·(t − x_i·x_j) = μ. Mehrotra's predictor chooses μ, which goes to 0. The
    active constraints need not be known in advance: only their λ stay positive.

    Args:
        points: Unit vectors to start from. With a ``symmetry``, one point per orbit.
        half_space: Whether to constrain |x_i·x_j|.
        steps: Maximum number of steps. A row stops earlier once Σ λ_ij·(t − x_i·x_j) is at rounding level.
        damping: Number added to the diagonal of the Newton matrix. It keeps points in place that no active constraint
            determines to first order.
        symmetry: Symmetry of the arrangement; all points of an orbit move together.
        hopeless: Value of t above which a row is not worth finishing. From the eleventh step on, a row whose t is expected
            to end above it stops; its best points so far are returned.

    >>> square = normalize(torch.tensor([[[1.0, 0.1], [0.0, 1.0], [-1.0, 0.0], [0.2, -1.0]]], dtype=torch.float64))
    >>> x = minimize_largest_cosine(square)[0]
    >>> (x @ x.T - torch.eye(4)).max().abs() < 1e-12
    tensor(True)
    """
    state = _State(points, half_space, damping, symmetry or no_symmetry(points.shape[2]))
    best, best_values = points.clone(), state.find_largest()
    rows = torch.arange(len(points), device=points.device)
    for number in range(steps):
        gap = state.step()
        values = state.find_largest()
        better = values < best_values[rows]
        best[rows[better]], best_values[rows[better]] = state.x[better], values[better]
        active = (gap > 1e-15) & values.isfinite()
        if number >= MIN_STEPS_TO_PREDICT:
            active &= state.t - EXPECTED_GAIN * gap < hopeless
        if not active.all():
            rows = rows[active]
            state.keep(active)
        if len(rows) == 0:
            break
    return best


def largest_cosine(points: Float[Tensor, "batch n dim"], half_space: bool) -> Float[Tensor, " batch"]:
    """Return max_{i≠j} x_i·x_j of each row, in half space max_{i≠j} |x_i·x_j|."""
    cos = points @ points.mT
    cos = cos.abs() if half_space else cos
    cos.diagonal(dim1=1, dim2=2).fill_(-1)
    return cos.flatten(1).amax(1)


def tangent_bases(points: Float[Tensor, "batch n dim"]) -> Float[Tensor, "batch n dim less"]:
    """Return an orthonormal basis of the tangent space at each point x, from a reflection that maps the last axis to ∓x."""
    last = points[..., -1:]
    v = points.clone()
    v[..., -1:] += torch.where(last < 0, -1.0, 1.0).to(points.dtype)
    dim = points.shape[-1]
    reflection = torch.eye(dim, dtype=points.dtype, device=points.device) - (
        v.unsqueeze(-1) * v.unsqueeze(-2) / (1 + last.abs()).unsqueeze(-1)
    )
    return reflection[..., :-1]


class _State:
    """The unknowns of a batch of rows: points x, bound t, slacks z and multipliers λ of all constraints.

    z and λ have the shape (batch, signs, m, n), for the m points of x and all n points of the arrangement. A pair of
    moving points occurs twice, as (i, j) and (j, i). The entry of a point with itself is not a constraint and has z = 1
    and λ = 0.
    """

    def __init__(self, points: Tensor, half_space: bool, damping: float, symmetry: PointSymmetry):
        self.x, self.damping, self.half_space, self.symmetry = points, damping, half_space, symmetry
        self._update_cosines()
        self.t = self.find_largest() + INITIAL_SLACK
        self.z = self.compute_slack()
        self_entries(self.z).fill_(1)
        weight = 1 / self.z
        self_entries(weight).zero_()
        self.multiplier = weight / weight.sum((1, 2, 3), keepdim=True)

    def _update_cosines(self) -> None:
        self.all_points = self.symmetry.expand(self.x)
        self.cos = (self.x @ self.all_points.mT).unsqueeze(1)

    def find_largest(self) -> Float[Tensor, " batch"]:
        """Return the largest cosine of each row."""
        cos = self.cos.abs() if self.half_space else self.cos.clone()
        self_entries(cos).fill_(-1)
        return cos.flatten(1).amax(1)

    def compute_slack(self) -> Tensor:
        """Return t ∓ x_i·x_j."""
        return _expand(self.t) - self.add_negatives(self.cos)

    def add_negatives(self, entries: Float[Tensor, "batch 1 m n"]) -> Float[Tensor, "batch signs m n"]:
        """Return the entries, in half space followed by their negatives."""
        return torch.cat([entries, -entries], 1) if self.half_space else entries

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.x, self.t, self.z, self.multiplier = self.x[rows], self.t[rows], self.z[rows], self.multiplier[rows]
        self.all_points, self.cos = self.all_points[rows], self.cos[rows]

    def step(self) -> Float[Tensor, " batch"]:
        """Move all rows by one predictor–corrector step; return Σ λ·z, a bound on the remaining decrease of t.

        ``change`` is the relative change Δz/z of the slacks. Linearizing λ·z = μ gives the relative change of λ,
        Δλ/λ = μ/(λ·z) − 1 − Δz/z. The predictor solves for μ = 0. Its longest steps that keep z and λ non-negative would
        give ``predicted_gap``. The corrector then solves for μ = (predicted_gap/gap)³·gap/pairs.
        """
        system, product = _Newton(self), self.multiplier * self.z
        gap = product.sum((1, 2, 3))
        _, _, change = system.solve_predictor()
        least, most = torch.aminmax(change.flatten(1), dim=1)
        dual, primal = (1 / (1 + most)).clamp(0, 1), _limit_step(least, 1.0)
        moved = product * change
        first, second = moved.sum((1, 2, 3)), (moved * change).sum((1, 2, 3))
        predicted_gap = (1 - dual) * gap + ((1 - dual) * primal - dual) * first - dual * primal * second
        pairs = product[0].numel() - product.shape[1] * product.shape[2]
        target = _expand((predicted_gap / gap).pow(3).clamp(1e-8, 1) * gap / pairs)
        move, dt, change = system.solve_corrector(target)
        self_entries(product).fill_(1)
        dual_change = (target / product).sub_(1).sub_(change)
        self_entries(dual_change).zero_()
        size = torch.linalg.vector_norm(move, dim=2).amax(1)
        primal = torch.minimum(_limit_step(change.flatten(1).amin(1), 0.995), MAX_STEP_RADIANS / size)
        dual = _limit_step(dual_change.flatten(1).amin(1), 0.995)
        self.x = normalize(self.x + primal[:, None, None] * move)
        self.t = self.t + primal * dt
        self.z = self.z * change.mul_(_expand(primal)).add_(1)
        self.multiplier = self.multiplier * dual_change.mul_(_expand(dual)).add_(1)
        self._update_cosines()
        return (self.multiplier * self.z).sum((1, 2, 3))


class _Newton:
    """The linear system of one step in tangent coordinates of the points, factorized once for predictor and corrector.

    Eliminating the changes of z and λ leaves a matrix over the coordinates a, c of the points i, j. With the bases B of
    the tangent spaces, W = λ/z and all points X of the arrangement, its entry (a, i), (c, j) is the sum of
    2·W·(B_ai·Rᵖx_j)·(B_cj·R⁻ᵖx_i) over the images Rᵖx_j. The diagonal blocks i = j have 2·B_aᵀ(Σ W·XXᵀ)B_c in addition.
    """

    def __init__(self, state: _State):
        self.state = state
        batch, m, dim = state.x.shape
        self.bases = tangent_bases(state.x).permute(0, 3, 1, 2).contiguous()  # batch, dim − 1, m, dim
        self.residual = state.z - state.compute_slack()
        self_entries(self.residual).zero_()
        self.weight = state.multiplier / state.z
        # A pair with a fixed point occurs once, all other pairs occur twice.
        self.weighted_points = state.all_points.clone()
        self.weighted_points[:, m * state.symmetry.order :] /= 2
        matrix = self._build_matrix().view(batch, m * (dim - 1), m * (dim - 1))
        matrix.diagonal(dim1=1, dim2=2).add_(state.damping)
        self.factor = torch.linalg.cholesky_ex(matrix).L
        force = self.weight * self.residual
        self.total = force.sum((1, 2, 3))
        self.by_bound, self.by_residual = self._project_forces(self.weight), self._project_forces(force)
        solved = torch.cholesky_solve(torch.stack([self.by_bound, -self.by_residual], 2), self.factor)
        self.by_bound_solved, self.free = solved.unbind(2)  # the moves per unit of dt, and those for dt = 0
        self.stiffness = (self.by_bound * self.by_bound_solved).sum(1) - self.weight.sum((1, 2, 3))

    def _build_matrix(self) -> Float[Tensor, "batch less m less m"]:
        state, (batch, m, dim) = self.state, self.state.x.shape
        order = state.symmetry.order
        weight = self.weight.sum(1) if state.half_space else self.weight[:, 0]
        images = state.all_points[:, : m * order].mT
        slope = (self.bases.flatten(1, 2) @ images).view(batch, dim - 1, m, order, m)
        weighted_slope = (2 * weight[:, None, :, : m * order]).unflatten(3, (order, m)) * slope
        matrix = slope.new_zeros(batch, dim - 1, m, dim - 1, m)
        for p in range(order):  # R⁻ᵖ rotates the pair (x_i, Rᵖx_j) to (R⁻ᵖx_i, x_j)
            matrix.addcmul_(
                weighted_slope[:, :, :, p].unsqueeze(3), slope[:, :, :, -p].permute(0, 3, 1, 2).unsqueeze(1)
            )
        squares = (self.weighted_points.unsqueeze(3) * state.all_points.unsqueeze(2)).flatten(2)
        moments = (weight @ squares).view(batch, m, dim, dim)
        diagonal = 2 * torch.einsum("band,bnde,bcne->bacn", self.bases, moments, self.bases)
        matrix.diagonal(dim1=2, dim2=4).add_(diagonal)
        return matrix

    def _project_forces(self, force: Tensor) -> Tensor:
        """Return Jᵀ·force in tangent coordinates."""
        force = force[:, 0] - force[:, 1] if self.state.half_space else force[:, 0]
        return 2 * torch.einsum("band,bnd->ban", self.bases, force @ self.weighted_points).flatten(1)

    def solve_predictor(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the step towards λ·z = 0: the moves of the points, the change of t, and the relative changes of z."""
        return self._solve(self.free, self.total)

    def solve_corrector(self, target: Float[Tensor, "batch 1 1 1"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the step towards λ·z = target."""
        force = target / self.state.z
        self_entries(force).zero_()
        pull = self.by_residual + self._project_forces(force)
        free = torch.cholesky_solve(-pull.unsqueeze(2), self.factor).squeeze(2)
        return self._solve(free, self.total + force.sum((1, 2, 3)))

    def _solve(self, free: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        state = self.state
        dt = (1 - total - (self.by_bound * free).sum(1)) / self.stiffness
        coordinates = (free + dt[:, None] * self.by_bound_solved).view(self.bases.shape[:3])
        move = torch.einsum("band,ban->bnd", self.bases, coordinates)
        moves = torch.zeros_like(state.all_points)
        moves[:, : move.shape[1] * state.symmetry.order] = state.symmetry.images(move)
        cos = torch.cat([move, state.x], 2) @ torch.cat([state.all_points, moves], 2).mT
        change = (_expand(dt) - self.residual - state.add_negatives(cos.unsqueeze(1))).div_(state.z)
        self_entries(change).zero_()
        return move, dt, change


def _expand(rows: Float[Tensor, " batch"]) -> Float[Tensor, "batch 1 1 1"]:
    return rows[:, None, None, None]


def _limit_step(least: Float[Tensor, " batch"], share: float) -> Float[Tensor, " batch"]:
    """Return the step length, at most 1, at which the smallest relative change ``least`` reaches −``share``."""
    return torch.where(least < 0, -share / least, torch.inf).clamp_max(1)
