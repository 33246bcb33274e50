"""Kernel values and gradients for blocks of the Gram matrix, with nearly parallel pairs handled separately.

A float32 Gram matrix gives the squared distance q = 2 − 2cos θ with an absolute error of about 2·10⁻⁷. For two neurons
10⁻⁴ radians apart, q is 10⁻⁸, so the error is twenty counts the value. :class:`Pass` therefore skips close pairs in its
blocks, and :class:`ClosePairs` computes them from the difference of the two directions in float64.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..geometry.fast_norms import directions
from .kernels import Kernel, Riesz

DIFFERENCE_ENTRIES = 1 << 20  # entries of the differences per block


def wide_dtype(x: Tensor) -> torch.dtype:
    """Return float64, or float32 on a device without float64 (mps)."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def close_limit(x: Tensor) -> float:
    """Return the squared distance below which a Gram matrix of this dtype is not accurate enough.

    Above the limit, the relative error of the squared distance is at most 10⁻⁴.

    >>> close_limit(torch.ones(1)), close_limit(torch.ones(1, dtype=torch.float64))
    (0.01, 1e-06)
    """
    return 1e-6 if x.dtype == torch.float64 else 1e-2


class ClosePairs:
    """The energy of listed close pairs and its gradient with respect to the directions.

    Args:
        kernel: The kernel φ.
        half_space: Whether to add φ of the distance to the antipode.
        weight: The neurons (batch, neurons, dim) in their original precision.
        grad: Tensor to which the gradient is added, or None.
        beta: Importance weights of the neurons, or None.
    """

    def __init__(self, kernel: Kernel, half_space: bool, weight: Tensor, grad: Tensor | None, beta: Tensor | None):
        self.kernel, self.half_space, self.weight, self.grad, self.beta = kernel, half_space, weight, grad, beta

    def add(self, total: Tensor, b: Tensor, i: Tensor, j: Tensor, sign: Tensor, counts: Tensor) -> None:
        """Add the pairs to ``total`` and to the gradient.

        Args:
            total: Energy of each matrix of the batch, changed in place.
            b: Index of the matrix of each pair.
            i: Index of the first neuron of each pair.
            j: Index of the second neuron of each pair.
            sign: 1 for nearly parallel pairs, −1 for nearly antiparallel ones.
            counts: Weight of each pair.
        """
        step = max(1, DIFFERENCE_ENTRIES // self.weight.shape[2])
        for start in range(0, len(b), step):
            part = slice(start, start + step)
            self._add(total, b[part], i[part], j[part], sign[part].to(total.dtype), counts[part].to(total.dtype))

    def _add(self, total: Tensor, b: Tensor, i: Tensor, j: Tensor, sign: Tensor, counts: Tensor) -> None:
        # With δ = β_i·ŵ_i − sign·β_j·ŵ_j, ‖δ‖² is the squared distance to neuron j (sign = 1) or to its antipode
        # (sign = −1), whichever is nearer. The parallelogram law gives the squared distance to the other one, which is
        # large and therefore accurate.
        beta_i, beta_j = (torch.ones_like(sign) if self.beta is None else self.beta.to(sign.dtype)[k] for k in (i, j))
        difference = beta_i[:, None] * self._direction(b, i) - (sign * beta_j)[:, None] * self._direction(b, j)
        near = difference.square().sum(1)
        far = 2 * (beta_i.square() + beta_j.square()) - near
        q, opposite = torch.where(sign > 0, near, far), torch.where(sign > 0, far, near)
        value, slope = self.kernel(q), self._slope(q)
        if self.half_space:
            value, slope = value + self.kernel(opposite), slope - self._slope(opposite)
        total.index_add_(0, b, value * counts)
        if self.grad is not None:
            # dq = sign·d‖δ‖² = 2·sign·δ·dδ, and δ depends on ŵ_i with factor β_i, on ŵ_j with factor −sign·β_j.
            pull = (2 * sign * slope * counts)[:, None] * difference
            n = self.weight.shape[1]
            flat = self.grad.view(-1, self.grad.shape[2])
            flat.index_add_(0, b * n + i, (beta_i[:, None] * pull).to(flat.dtype))
            flat.index_add_(0, b * n + j, (-(sign * beta_j)[:, None] * pull).to(flat.dtype))

    def _direction(self, b: Tensor, i: Tensor) -> Tensor:
        return directions(self.weight[b, i].to(wide_dtype(self.weight)))[0]

    def _slope(self, q: Tensor) -> Tensor:
        return self.kernel.slope(q.clamp_min(self.kernel.floor**2))


class Pass:
    """One pass over the pairs of a batch of matrices, block by block.

    For a pair the energy is φ(q) with q = 2 − 2cos θ, so the gradient with respect to direction x_i is
    Σ_j φ'(q_ij)·(−2)·x_j. The pass accumulates the force −φ' times the other direction with one matrix product per
    block. The component along x_i is removed later by :func:`~hypersphere.geometry.fast_norms.directions_backward`.

    Args:
        kernel: The kernel φ.
        half_space: Whether to add φ(4 − q), the energy with the antipode.
        weight: The neurons (batch, neurons, dim) in their original precision, for close pairs.
        x: Their directions.
        grad: Tensor that receives the gradient with respect to ``x``, or None.
        beta: Importance weights of the neurons, or None.
        inspect: Function called for each block of :meth:`triangle` with its cosines (−2 for a neuron with itself), the
            index of its first row, and one past the index of its last row. The first column has the same index as the
            first row.
        values_only: Skip the slopes. Not allowed with ``grad``.
    """

    def __init__(
        self,
        kernel: Kernel,
        half_space: bool,
        weight: Tensor,
        x: Tensor,
        grad: Tensor | None,
        beta: Tensor | None,
        *,
        inspect: Callable[[Tensor, int, int], None] | None = None,
        values_only: bool = False,
    ):
        assert not (values_only and grad is not None)
        self.inspect, self.values_only, self._at = inspect, values_only, (0, 0)
        self.kernel, self.half_space, self.x, self.grad = kernel, half_space, x, grad
        self.beta = None if beta is None else beta.to(x.dtype)
        self.both_ends = half_space or kernel.antipodal  # these need the distance to the antipode as well
        self.close = ClosePairs(kernel, half_space, weight, grad, beta)
        self.total = torch.zeros(len(x), dtype=wide_dtype(x), device=x.device)

    def triangle(self, chunk: int) -> Tensor:
        """Return the sum over all ordered pairs, computing each unordered pair once and counting it twice."""
        n = self.x.shape[1]
        for start in range(0, n, chunk):
            self.block(start, min(start + chunk, n))
        return self.total

    def block(self, start: int, stop: int) -> Tensor:
        """Add the part of the upper triangle in these rows to the sums. Call with ascending blocks of rows."""
        x, n, beta, inside = self.x, self.x.shape[1], self.beta, stop - start
        left, right = x[:, start:stop], x[:, start:]
        self._at = (start, stop)
        value, force, close = self._evaluate(
            left, right, None, None if beta is None else (beta[start:stop], beta[start:])
        )
        self.total += 2 * value.sum((1, 2)) - value[:, :, :inside].sum((1, 2)) if stop < n else value.sum((1, 2))
        if self.grad is not None:
            _add_product(self.grad[:, start:stop], force, right, first=start == 0)
            if stop < n:
                _add_product(self.grad[:, stop:], force[:, :, inside:].mT, left, first=start == 0)
        if close is not None:
            b, i, j, sign = close
            once = j > i
            self.close.add(
                self.total, b[once], i[once] + start, j[once] + start, sign[once], torch.full_like(sign[once], 2)
            )
        return self.total

    def rows(self, rows: Tensor, counts: Tensor | None, chunk: int, columns: int | None = None) -> Tensor:
        """Return the sum over the pairs of the given rows with all neurons, or with the first ``columns`` neurons.

        Args:
            rows: Indices of neurons.
            counts: Weight of each row; 1 if None.
            chunk: Rows per block.
            columns: Number of leading neurons to compare the rows with; all if None.
        """
        x, beta = self.x, self.beta
        columns = x.shape[1] if columns is None else columns
        right = x[:, :columns]
        counts = torch.ones(len(rows), dtype=x.dtype, device=x.device) if counts is None else counts.to(x.dtype)
        for start in range(0, len(rows) if columns else 0, chunk):
            i, count = rows[start : start + chunk], counts[start : start + chunk]
            left = x[:, i]
            value, force, close = self._evaluate(left, right, i, None if beta is None else (beta[i], beta[:columns]))
            self.total += (value.sum(2) * count).sum(1)
            if self.grad is not None:
                force = force * count[:, None]
                self.grad[:, :columns].baddbmm_(force.mT, left, alpha=2)
                self.grad.index_add_(1, i, force @ right, alpha=2)
            if close is not None:
                b, r, j, sign = close
                self.close.add(self.total, b, i[r], j, sign, count[r])
        return self.total

    def _evaluate(
        self, left: Tensor, right: Tensor, self_columns: Tensor | None, beta: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...] | None]:
        """Return φ and −dφ/dq of a block of pairs, and the close pairs of the block.

        Entries of a neuron with itself and of close pairs are 0. ``self_columns`` has the column of each row's own
        neuron; if None, it is the diagonal.
        """
        cos = left @ right.mT
        if self.inspect is not None:
            cos.diagonal(dim1=1, dim2=2).fill_(-2)
            self.inspect(cos, *self._at)
        cos = zero_self_pairs(cos, self_columns)
        close, mask = None, None
        if self.has_close(cos):
            mask = (cos.abs() if self.both_ends else cos) > 1 - close_limit(cos) / 2
            close = *mask.nonzero(as_tuple=True), cos[mask].sign()
            cos.masked_fill_(mask, 0)
        if beta is None:
            value, force = self.evaluate_cosines(cos, torch.empty_like(cos))
        else:
            value, force = self._evaluate_distances(*squared_distances(cos, beta))
            force = force * beta[0][:, None] * beta[1]
        value = zero_self_pairs(value, self_columns)
        force = value if self.values_only else zero_self_pairs(force, self_columns)
        if mask is not None:
            value, force = value.masked_fill_(mask, 0), force.masked_fill_(mask, 0)
        return value, force, close

    def has_close(self, cos: Tensor) -> bool:
        """Return whether a pair is too close for the Gram matrix, or nearly antipodal if the kernel needs that."""
        least, most = torch.aminmax(cos)
        limit = 1 - close_limit(cos) / 2
        return bool(most > limit or (self.both_ends and least < -limit))

    def close_blocks(self, least: Tensor, most: Tensor) -> list[int]:
        """Return the indices of the blocks with a close pair, from the extreme cosines of each block."""
        limit = 1 - close_limit(most) / 2
        close = (most > limit) | (least < -limit) if self.both_ends else most > limit
        return close.nonzero().squeeze(1).tolist()

    def evaluate_cosines(self, cos: Tensor, scratch: Tensor) -> tuple[Tensor, Tensor]:
        """Return φ and −dφ/dq of cosines, overwriting both arguments."""
        if self.half_space and type(self.kernel) is Riesz and self.kernel.s == 2:
            # Half space with s = 2 has a closed form, 1/(2 − 2c) + 1/(2 + 2c) = 1/(1 − c²), with a single division.
            value = torch.addcmul(cos.new_ones(()), cos, cos, value=-1, out=scratch).reciprocal_()
            return value, value if self.values_only else cos.mul_(value).mul_(value)
        q = torch.sub(cos.new_full((), 2), cos, alpha=2, out=scratch)
        return self._evaluate_distances(q, cos.mul_(2).add_(2) if self.half_space else cos)

    def _evaluate_distances(self, q: Tensor, opposite: Tensor) -> tuple[Tensor, Tensor]:
        if self.values_only:
            value = self.kernel.value(q)
            value = value + self.kernel.value(opposite) if self.half_space else value
            return value, value
        value, slope = self.kernel.value_and_slope(q)
        if self.half_space:
            more, less = self.kernel.value_and_slope(opposite)
            return value + more, less - slope
        return value, slope.neg_()


def _add_product(out: Tensor, a: Tensor, b: Tensor, *, first: bool) -> None:
    """Set out = 4·a·b if ``first``, otherwise add 4·a·b to it.

    The factor 4 is 2 for dq/dcos times 2 for the two orders of each pair. ``baddbmm_`` into a batch of non-contiguous
    slices runs one product at a time, so the slices get a temporary product instead.
    """
    if len(out) == 1 or out.is_contiguous():
        out.baddbmm_(a, b, alpha=4, beta=0 if first else 1)
    elif first:
        torch.mul(a @ b, 4, out=out)
    else:
        out.add_(a @ b, alpha=4)


def zero_self_pairs(block: Tensor, self_columns: Tensor | None) -> Tensor:
    """Set the entry of each neuron with itself to 0 in place: on the diagonal, or in these columns of the rows."""
    if self_columns is None:
        block.diagonal(dim1=1, dim2=2).zero_()
    else:
        inside = (self_columns < block.shape[2]).nonzero().squeeze(1)
        block[:, inside, self_columns[inside]] = 0
    return block


def squared_distances(cos: Tensor, beta: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """Return ‖β_i·ŵ_i ∓ β_j·ŵ_j‖². A zero row has cosines 0, so it counts as orthogonal to all others."""
    if beta is None:
        return 2 - 2 * cos, 2 + 2 * cos
    lengths, product = beta[0].square()[:, None] + beta[1].square(), 2 * beta[0][:, None] * beta[1]
    return lengths - product * cos, lengths + product * cos
