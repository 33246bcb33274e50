"""An interior-point method for Tammes' problem, which equalizes the smallest angles to the last digits."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import normalize
from .point_symmetry import PointSymmetry, no_symmetry, self_entries

SLACK = 1e-3  # what the bound t starts above the largest cosine: the change that is expected of a relaxed start
LONGEST = 0.2  # radians a point may move in one step
SETTLED = 10  # steps after which t and Σ λz predict the result of a row
SHARE = 0.75  # of Σ λz, the most that can be gained to first order, that t still falls: 0.4 early, near 1 at the end


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
    r"""Solve min t subject to x_i·x_j ≤ t for all pairs, from each row of a batch; return the best points found.

    In half space −x_i·x_j ≤ t is demanded too. Each step is a primal–dual Newton step on the conditions of optimality,
    Σ λ_ij ∇(x_i·x_j) = 0, Σ λ_ij = 1 and λ_ij·(t − x_i·x_j) = μ, with μ chosen by Mehrotra's predictor and driven to 0.
    Which pairs touch need not be known: their λ stays positive. ``damping`` holds points that no pair holds, and those
    on which the pairs have no first-order effect. A row ends where λ and the slack leave nothing to gain, or after ``steps``.

    With a ``symmetry`` each point stands for its orbit, and the points of an orbit move together. A row whose t
    is expected to end above ``hopeless`` is given up after ten steps or later; it counts with what it has reached.

    >>> square = normalize(torch.tensor([[[1.0, 0.1], [0.0, 1.0], [-1.0, 0.0], [0.2, -1.0]]], dtype=torch.float64))
    >>> x = minimize_largest_cosine(square)[0]
    >>> (x @ x.T - torch.eye(4)).max().abs() < 1e-12
    tensor(True)
    """
    state = _State(points, half_space, damping, symmetry or no_symmetry(points.shape[2]))
    best, value = points.clone(), state.largest()
    rows = torch.arange(len(points), device=points.device)
    for done in range(steps):
        gap = state.step()
        reached = state.largest()
        better = reached < value[rows]
        best[rows[better]], value[rows[better]] = state.x[better], reached[better]
        going = (gap > 1e-15) & reached.isfinite()
        if done >= SETTLED:
            going &= state.t - SHARE * gap < hopeless
        if not going.all():
            rows = rows[going]
            state.keep(going)
        if len(rows) == 0:
            break
    return best


def largest_cosine(points: Float[Tensor, "batch n dim"], half_space: bool) -> Float[Tensor, " batch"]:
    """Return max_{i≠j} x_i·x_j of each row, or of |x_i·x_j| in half space."""
    cos = points @ points.mT
    cos = cos.abs() if half_space else cos
    cos.diagonal(dim1=1, dim2=2).fill_(-1)
    return cos.flatten(1).amax(1)


def tangent_bases(points: Float[Tensor, "batch n dim"]) -> Float[Tensor, "batch n dim less"]:
    """Return orthonormal columns perpendicular to each point, from a reflection that maps the last axis to ∓x."""
    last = points[..., -1:]
    v = points.clone()
    v[..., -1:] += torch.where(last < 0, -1.0, 1.0).to(points.dtype)
    dim = points.shape[-1]
    reflection = torch.eye(dim, dtype=points.dtype, device=points.device) - (
        v.unsqueeze(-1) * v.unsqueeze(-2) / (1 + last.abs()).unsqueeze(-1)
    )
    return reflection[..., :-1]


class _State:
    """The unknowns of a batch of rows: points x, bound t, slack z and multipliers λ of each point with all points.

    z and λ are (batch, signs, m, n). A pair of moving points is there twice, as (i, j) and (j, i); the entry of a point
    with itself has z = 1 and λ = 0 and takes no part.
    """

    def __init__(self, points: Tensor, half_space: bool, damping: float, symmetry: PointSymmetry):
        self.x, self.damping, self.half_space, self.symmetry = points, damping, half_space, symmetry
        self._look()
        self.t = self.largest() + SLACK
        self.z = self.slack()
        self_entries(self.z).fill_(1)
        weight = 1 / self.z
        self_entries(weight).zero_()
        self.multiplier = weight / weight.sum((1, 2, 3), keepdim=True)

    def _look(self) -> None:
        self.whole = self.symmetry.expand(self.x)
        self.cos = (self.x @ self.whole.mT).unsqueeze(1)

    def largest(self) -> Float[Tensor, " batch"]:
        """Return the largest cosine of each row."""
        cos = self.cos.abs() if self.half_space else self.cos.clone()
        self_entries(cos).fill_(-1)
        return cos.flatten(1).amax(1)

    def slack(self) -> Tensor:
        """Return t ∓ x_i·x_j."""
        return _wide(self.t) - self.both(self.cos)

    def both(self, entries: Float[Tensor, "batch 1 m n"]) -> Float[Tensor, "batch signs m n"]:
        """Return the entries, in half space with their negatives."""
        return torch.cat([entries, -entries], 1) if self.half_space else entries

    def keep(self, rows: Tensor) -> None:
        """Keep these rows and drop the others."""
        self.x, self.t, self.z, self.multiplier = self.x[rows], self.t[rows], self.z[rows], self.multiplier[rows]
        self.whole, self.cos = self.whole[rows], self.cos[rows]

    def step(self) -> Float[Tensor, " batch"]:
        """Move all rows; return Σ λ·z, a bound of the remaining improvement."""
        system, product = _Newton(self), self.multiplier * self.z
        gap = product.sum((1, 2, 3))
        _, _, change = system.predictor()  # of z, relative; that of λ is then −1 − change
        least, most = torch.aminmax(change.flatten(1), dim=1)
        dual, primal = (1 / (1 + most)).clamp(0, 1), _reach(least, 1.0)
        moved = product * change
        first, second = moved.sum((1, 2, 3)), (moved * change).sum((1, 2, 3))
        ahead = (1 - dual) * gap + ((1 - dual) * primal - dual) * first - dual * primal * second
        pairs = product[0].numel() - product.shape[1] * product.shape[2]
        target = _wide((ahead / gap).pow(3).clamp(1e-8, 1) * gap / pairs)
        move, dt, change = system.corrector(target)
        self_entries(product).fill_(1)
        dual_change = (target / product).sub_(1).sub_(change)
        self_entries(dual_change).zero_()
        size = torch.linalg.vector_norm(move, dim=2).amax(1)
        primal = torch.minimum(_reach(change.flatten(1).amin(1), 0.995), LONGEST / size)
        dual = _reach(dual_change.flatten(1).amin(1), 0.995)
        self.x = normalize(self.x + primal[:, None, None] * move)
        self.t = self.t + primal * dt
        self.z = self.z * change.mul_(_wide(primal)).add_(1)
        self.multiplier = self.multiplier * dual_change.mul_(_wide(dual)).add_(1)
        self._look()
        return (self.multiplier * self.z).sum((1, 2, 3))


class _Newton:
    """The linear system of one step, reduced to the points' tangent coordinates and factorised once for two right sides.

    With the images X of all points, bases B of the tangent planes and W = λ/z the matrix has in row (a, i) and column
    (c, j) the sum over the images Rᵖj of 2·W·(B_ai·Rᵖx_j)·(B_cj·R⁻ᵖx_i), on its diagonal blocks 2·B_aᵀ(Σ W·XXᵀ)B_c too.
    """

    def __init__(self, state: _State):
        self.state = state
        batch, m, dim = state.x.shape
        self.bases = tangent_bases(state.x).permute(0, 3, 1, 2).contiguous()  # batch, dim − 1, m, dim
        self.residual = state.z - state.slack()
        self_entries(self.residual).zero_()
        self.weight = state.multiplier / state.z
        # A pair with a fixed point is there once, any other twice.
        self.pulling = state.whole.clone()
        self.pulling[:, m * state.symmetry.order :] /= 2
        matrix = self._matrix().view(batch, m * (dim - 1), m * (dim - 1))
        matrix.diagonal(dim1=1, dim2=2).add_(state.damping)
        self.factor = torch.linalg.cholesky_ex(matrix).L
        force = self.weight * self.residual
        self.total, self.by_bound, self.by_residual = force.sum((1, 2, 3)), self._pull(self.weight), self._pull(force)
        solved = torch.cholesky_solve(torch.stack([self.by_bound, -self.by_residual], 2), self.factor)
        self.by_bound_solved, self.free = solved.unbind(2)
        self.stiffness = (self.by_bound * self.by_bound_solved).sum(1) - self.weight.sum((1, 2, 3))

    def _matrix(self) -> Float[Tensor, "batch less m less m"]:
        state, (batch, m, dim) = self.state, self.state.x.shape
        order = state.symmetry.order
        weight = self.weight.sum(1) if state.half_space else self.weight[:, 0]
        images = state.whole[:, : m * order].mT
        slope = (self.bases.flatten(1, 2) @ images).view(batch, dim - 1, m, order, m)
        pulled = (2 * weight[:, None, :, : m * order]).unflatten(3, (order, m)) * slope
        matrix = slope.new_zeros(batch, dim - 1, m, dim - 1, m)
        for p in range(order):  # seen from j, the point i is the image under R⁻ᵖ
            matrix.addcmul_(pulled[:, :, :, p].unsqueeze(3), slope[:, :, :, -p].permute(0, 3, 1, 2).unsqueeze(1))
        squares = (self.pulling.unsqueeze(3) * state.whole.unsqueeze(2)).flatten(2)
        around = (weight @ squares).view(batch, m, dim, dim)
        own = 2 * torch.einsum("band,bnde,bcne->bacn", self.bases, around, self.bases)
        matrix.diagonal(dim1=2, dim2=4).add_(own)
        return matrix

    def _pull(self, force: Tensor) -> Tensor:
        """Return Jᵀ·force in tangent coordinates."""
        force = force[:, 0] - force[:, 1] if self.state.half_space else force[:, 0]
        return 2 * torch.einsum("band,bnd->ban", self.bases, force @ self.pulling).flatten(1)

    def predictor(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the step towards λ·z = 0: the points' moves, that of t, and the relative ones of z."""
        return self._step(self.free, self.total)

    def corrector(self, target: Float[Tensor, "batch 1 1 1"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the step towards λ·z = target."""
        force = target / self.state.z
        self_entries(force).zero_()
        pull = self.by_residual + self._pull(force)
        free = torch.cholesky_solve(-pull.unsqueeze(2), self.factor).squeeze(2)
        return self._step(free, self.total + force.sum((1, 2, 3)))

    def _step(self, free: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        state = self.state
        dt = (1 - total - (self.by_bound * free).sum(1)) / self.stiffness
        coordinates = (free + dt[:, None] * self.by_bound_solved).view(self.bases.shape[:3])
        move = torch.einsum("band,ban->bnd", self.bases, coordinates)
        moves = torch.zeros_like(state.whole)
        moves[:, : move.shape[1] * state.symmetry.order] = state.symmetry.images(move)
        cos = torch.cat([move, state.x], 2) @ torch.cat([state.whole, moves], 2).mT
        change = (_wide(dt) - self.residual - state.both(cos.unsqueeze(1))).div_(state.z)
        self_entries(change).zero_()
        return move, dt, change


def _wide(rows: Float[Tensor, " batch"]) -> Float[Tensor, "batch 1 1 1"]:
    return rows[:, None, None, None]


def _reach(least: Float[Tensor, " batch"], share: float) -> Float[Tensor, " batch"]:
    """Return the share of a step that may be taken if its smallest relative change is ``least``, no more than 1."""
    return torch.where(least < 0, -share / least, torch.inf).clamp_max(1)
