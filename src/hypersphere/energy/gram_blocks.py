"""Blocks of the Gram matrix: the kernel and its slope for every pair of a block, close pairs set apart."""

from collections.abc import Callable

import torch
from torch import Tensor

from .close import ClosePairs, closeness, wide
from .kernels import Kernel, Riesz


class Pass:
    """One pass over the pairs of a few matrices; ``grad`` gathers the derivative by the directions x.

    ``look`` is called with the cosines of each block of :meth:`triangle`, −2 for a neuron with itself, and with the
    numbers of the block's first row (and column) and one past its last row. ``values`` leaves the slopes out.
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
        look: Callable[[Tensor, int, int], None] | None = None,
        values: bool = False,
    ):
        assert not (values and grad is not None)
        self.look, self.values, self._at = look, values, (0, 0)
        self.kernel, self.half_space, self.x, self.grad = kernel, half_space, x, grad
        self.beta = None if beta is None else beta.to(x.dtype)
        self.both_ends = half_space or kernel.antipodal  # these need the distance to the antipode as well
        self.close = ClosePairs(kernel, half_space, weight, grad, beta)
        self.total = torch.zeros(len(x), dtype=wide(x), device=x.device)

    def triangle(self, chunk: int) -> Tensor:
        """Every unordered pair once, counted twice."""
        n = self.x.shape[1]
        for start in range(0, n, chunk):
            self.block(start, min(start + chunk, n))
        return self.total

    def block(self, start: int, stop: int) -> Tensor:
        """The part of the triangle in these rows, added to the sums of the blocks before, which come first."""
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

    def rows(self, rows: Tensor, counts: Tensor | None, chunk: int, among: int | None = None) -> Tensor:
        """The given rows against all neurons, or against the first ``among`` of them."""
        x, beta = self.x, self.beta
        among = x.shape[1] if among is None else among
        right = x[:, :among]
        times = torch.ones(len(rows), dtype=x.dtype, device=x.device) if counts is None else counts.to(x.dtype)
        for start in range(0, len(rows) if among else 0, chunk):
            i, count = rows[start : start + chunk], times[start : start + chunk]
            left = x[:, i]
            value, force, close = self._evaluate(left, right, i, None if beta is None else (beta[i], beta[:among]))
            self.total += (value.sum(2) * count).sum(1)
            if self.grad is not None:
                force = force * count[:, None]
                self.grad[:, :among].baddbmm_(force.mT, left, alpha=2)
                self.grad.index_add_(1, i, force @ right, alpha=2)
            if close is not None:
                b, r, j, sign = close
                self.close.add(self.total, b, i[r], j, sign, count[r])
        return self.total

    def _evaluate(
        self, left: Tensor, right: Tensor, own: Tensor | None, beta: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...] | None]:
        """φ and −dφ/dq of a block of pairs, 0 for a neuron with itself and for close pairs, which are listed instead.

        ``own`` is the column of each row's own neuron; without it, they are on the diagonal.
        """
        cos = left @ right.mT
        if self.look is not None:
            cos.diagonal(dim1=1, dim2=2).fill_(-2)
            self.look(cos, *self._at)
        cos = without_self(cos, own)
        close, mask = None, None
        if self.has_close(cos):
            mask = (cos.abs() if self.both_ends else cos) > 1 - closeness(cos) / 2
            close = *mask.nonzero(as_tuple=True), cos[mask].sign()
            cos.masked_fill_(mask, 0)
        if beta is None:
            value, force = self.of_cosines(cos, torch.empty_like(cos))
        else:
            value, force = self._of_distances(*squared_distances(cos, beta))
            force = force * beta[0][:, None] * beta[1]
        value = without_self(value, own)
        force = value if self.values else without_self(force, own)
        if mask is not None:
            value, force = value.masked_fill_(mask, 0), force.masked_fill_(mask, 0)
        return value, force, close

    def has_close(self, cos: Tensor) -> bool:
        """Whether any pair is too close for the Gram matrix, or next to antipodal where that matters."""
        least, most = torch.aminmax(cos)
        limit = 1 - closeness(cos) / 2
        return bool(most > limit or (self.both_ends and least < -limit))

    def close_blocks(self, least: Tensor, most: Tensor) -> list[int]:
        """The same of many blocks by their extremes: the numbers of those that have such a pair."""
        limit = 1 - closeness(most) / 2
        close = (most > limit) | (least < -limit) if self.both_ends else most > limit
        return close.nonzero().squeeze(1).tolist()

    def of_cosines(self, cos: Tensor, scratch: Tensor) -> tuple[Tensor, Tensor]:
        """φ and −dφ/dq of cosines, in the memory of either argument."""
        if self.half_space and type(self.kernel) is Riesz and self.kernel.s == 2:
            value = torch.addcmul(
                cos.new_ones(()), cos, cos, value=-1, out=scratch
            ).reciprocal_()  # 1/(2−2c) + 1/(2+2c) = 1/(1−c²)
            return value, value if self.values else cos.mul_(value).mul_(value)
        q = torch.sub(cos.new_full((), 2), cos, alpha=2, out=scratch)
        return self._of_distances(q, cos.mul_(2).add_(2) if self.half_space else cos)

    def _of_distances(self, q: Tensor, opposite: Tensor) -> tuple[Tensor, Tensor]:
        if self.values:
            value = self.kernel.value(q)
            value = value + self.kernel.value(opposite) if self.half_space else value
            return value, value
        value, slope = self.kernel.value_and_slope(q)
        if self.half_space:
            more, less = self.kernel.value_and_slope(opposite)
            return value + more, less - slope
        return value, slope.neg_()


def _add_product(out: Tensor, a: Tensor, b: Tensor, *, first: bool) -> None:
    """out += 4·a·b, or out = 4·a·b at first; a batch of slices is not one product to the library, but one by one."""
    if len(out) == 1 or out.is_contiguous():
        out.baddbmm_(a, b, alpha=4, beta=0 if first else 1)
    elif first:
        torch.mul(a @ b, 4, out=out)
    else:
        out.add_(a @ b, alpha=4)


def without_self(block: Tensor, own: Tensor | None) -> Tensor:
    """0, in place, for a neuron with itself: on the diagonal, or in column ``own`` of each row, where there is one."""
    if own is None:
        block.diagonal(dim1=1, dim2=2).zero_()
    else:
        there = (own < block.shape[2]).nonzero().squeeze(1)
        block[:, there, own[there]] = 0
    return block


def squared_distances(cos: Tensor, beta: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """‖β_iŵ_i ∓ β_jŵ_j‖², so that a zero row, whose cosines are 0, counts as orthogonal to all."""
    if beta is None:
        return 2 - 2 * cos, 2 + 2 * cos
    lengths, product = beta[0].square()[:, None] + beta[1].square(), 2 * beta[0][:, None] * beta[1]
    return lengths - product * cos, lengths + product * cos
