r"""Sums of a kernel over all pairs of neurons, with their gradient, in chunks of rows: memory O(N·chunk), not O(N²).

Value and gradient come out of one pass over the upper triangle of the Gram matrix, so the backward pass is a
multiplication. Pairs so close that 2 − 2cos θ has lost its digits are done over by differences (:mod:`.close`).
Computed in float32 or better, also under autocast; to ``torch.compile`` the whole sum is one opaque operator.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import normalize
from .close import ClosePairs, closeness, wide
from .kernels import KERNELS, AngularRiesz, Kernel

ENTRIES = 1 << 19  # of one chunk of the Gram matrix: small enough to stay in the cache between the passes over it
TOGETHER = 1 << 18  # entries of the Gram matrices of a batch that are done together
WHOLE = 256  # neurons up to which saving the lower triangle is not worth the passes over their entries


def pair_sums(
    weight: Float[Tensor, "batch neurons dim"],
    kernel: Kernel,
    *,
    half_space: bool = False,
    importance: Float[Tensor, " neurons"] | None = None,
    rows: Int[Tensor, " rows"] | None = None,
    counts: Float[Tensor, " rows"] | None = None,
    chunk: int | None = None,
) -> Float[Tensor, " batch"]:
    r"""Σ_{i≠j} φ(‖ŵ_i − ŵ_j‖²) over ordered pairs, for each matrix of a batch; in half space φ(q) + φ(4 − q).

    ``rows`` restricts i to those neurons, each counted ``counts`` times. ``importance`` puts the neurons at β_i·ŵ_i.
    ``chunk`` is the number of rows done at a time. Differentiable twice: the second derivative forms all pairs at once.

    >>> from hypersphere.energy.kernels import Riesz
    >>> pair_sums(torch.eye(3)[None], Riesz(2))
    tensor([3.])
    """
    chunk = chunk or _rows_at_a_time(weight)
    gradient = torch.is_grad_enabled() and weight.requires_grad
    # The operator costs its first caller the import of the compiler, so eager code does without.
    run = _operator if torch.compiler.is_compiling() else _PairSums.apply
    sums, _ = run(weight, importance, rows, counts, kernel.name, kernel.parameter, half_space, chunk, gradient)
    return sums


def value_and_gradient(
    weight: Float[Tensor, "batch neurons dim"], kernel: Kernel, half_space: bool = False
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch neurons dim"]]:
    """:func:`pair_sums` and their gradient at once, without autograd."""
    return _compute(weight, None, None, None, kernel.name, kernel.parameter, half_space, _rows_at_a_time(weight), True)


def _rows_at_a_time(weight: Tensor) -> int:
    """A quarter of the rows, so that the lower triangle is saved, in no more than a chunk's entries and not too few at a time."""
    n = weight.shape[1]
    return max(64, min(max(128, n // 4), ENTRIES // n))


def _compute(
    weight: Tensor,
    importance: Tensor | None,
    rows: Tensor | None,
    counts: Tensor | None,
    name: str,
    parameter: float,
    half_space: bool,
    chunk: int,
    gradient: bool,
) -> tuple[Tensor, Tensor]:
    kernel = KERNELS[name](parameter)
    with torch.autocast(weight.device.type, enabled=False):
        if rows is None and importance is None and weight.shape[1] <= min(WHOLE, weight.shape[2]):
            done = _at_once(kernel, half_space, weight, gradient)
            if done is not None:
                return done
        x, length = _directions(weight)
        grad = (torch.empty_like(x) if rows is None else torch.zeros_like(x)) if gradient else None
        sums = torch.empty(len(x), dtype=wide(x), device=x.device)
        together = max(1, TOGETHER // (min(chunk, x.shape[1]) * x.shape[1]))
        for first in range(0, len(x), together):
            part = slice(first, first + together)
            work = _Pass(kernel, half_space, weight[part], x[part], None if grad is None else grad[part], importance)
            sums[part] = work.triangle(chunk) if rows is None else work.rows(rows, counts, chunk)
        if grad is None:
            return sums.to(x.dtype), x.new_empty(0)
        return sums.to(x.dtype), _through_normalization(grad, x, length).to(weight.dtype)


def _at_once(kernel: Kernel, half_space: bool, weight: Tensor, gradient: bool) -> tuple[Tensor, Tensor] | None:
    r"""The sums and gradients of few long neurons, by two products and nothing else of their size; None if that is not exact.

    With the Gram matrix C of ŵ, D = diag(1/‖w‖) and F the forces, (I − ŵŵᵀ)FŵD of each row is D(F − diag(F∘C·1))D·W.
    Close pairs, zero rows and lengths whose squares lose digits need the care of :class:`_Pass`.
    """
    x = weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
    work = _Pass(kernel, half_space, weight, x, None, None)
    cos = x @ x.mT
    inverse = cos.diagonal(dim1=1, dim2=2).rsqrt()
    cos.mul_(inverse.unsqueeze(2)).mul_(inverse.unsqueeze(1)).diagonal(dim1=1, dim2=2).zero_()
    least, most = torch.aminmax(inverse)
    if not (least > 1e-8 and most < 1e8) or work.has_close(cos):
        return None
    kept = cos.clone() if half_space and gradient else cos  # whose memory the half-space kernels use
    value, force = work.of_cosines(cos)
    sums = _without_self(value, None).sum((1, 2))
    if not gradient:
        return sums, x.new_empty(0)
    radial = torch.linalg.vecdot(_without_self(force, None), kept)
    force.diagonal(dim1=1, dim2=2).sub_(radial)
    force.mul_((4 * inverse).unsqueeze(2)).mul_(inverse.unsqueeze(1))
    return sums, (force @ x).to(weight.dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    weight, importance, rows, counts, name, parameter, half_space, _, _ = inputs
    ctx.save_for_backward(weight, importance, rows, counts, output[1])
    ctx.kernel, ctx.half_space = (name, parameter), half_space


def _backward(ctx: Any, grad_sums: Tensor, _: Any) -> tuple[Any, ...]:
    weight, importance, rows, counts, grad = ctx.saved_tensors
    if torch.is_grad_enabled():  # a second derivative is wanted: the same gradient, as a function of the weight
        name, parameter = ctx.kernel
        sums = dense_sums(weight, KERNELS[name](parameter), ctx.half_space, importance, rows, counts)
        (grad,) = torch.autograd.grad(sums.sum(), weight, create_graph=True)
    return (grad_sums[:, None, None].to(grad.dtype) * grad, *[None] * 8)


class _PairSums(torch.autograd.Function):
    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        return _compute(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        _save(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return _backward(ctx, *grads)


_operator = torch.library.custom_op(
    "hypersphere::pair_sums",
    _compute,
    mutates_args=(),
    schema="(Tensor weight, Tensor? importance, Tensor? rows, Tensor? counts, str name, float parameter, bool half_space, int chunk,"
    " bool gradient) -> (Tensor, Tensor)",
)
_operator.register_autograd(_backward, setup_context=_save)


@_operator.register_fake
def _shapes(*inputs: Any) -> tuple[Tensor, Tensor]:
    weight, gradient = inputs[0], inputs[-1]
    sums = weight.new_empty(weight.shape[0], dtype=torch.promote_types(weight.dtype, torch.float32))
    return sums, torch.empty_like(weight) if gradient else sums.new_empty(0)


def dense_sums(
    weight: Float[Tensor, "batch neurons dim"],
    kernel: Kernel,
    half_space: bool = False,
    importance: Float[Tensor, " neurons"] | None = None,
    rows: Int[Tensor, " rows"] | None = None,
    counts: Float[Tensor, " rows"] | None = None,
) -> Float[Tensor, " batch"]:
    """:func:`pair_sums` by differentiable operations on the whole Gram matrix, in float64 for the sake of close pairs."""
    with torch.autocast(weight.device.type, enabled=False):
        x = normalize(weight.to(wide(weight)))
        n = torch.arange(x.shape[1], device=x.device)
        i = n if rows is None else rows
        beta = None if importance is None else (importance.to(x.dtype)[i], importance.to(x.dtype))
        q, opposite = _squared_distances(x[:, i] @ x.mT, beta)
        value = kernel(q) + kernel(opposite) if half_space else kernel(q)
        value = value.masked_fill(i[:, None] == n, 0)
        if counts is not None:
            value = value * counts.to(value.dtype)[:, None]
        return value.sum((1, 2)).to(torch.promote_types(weight.dtype, torch.float32))


class _Pass:
    """One pass over the pairs of a few matrices; ``grad`` gathers the derivative by the directions x."""

    def __init__(self, kernel: Kernel, half_space: bool, weight: Tensor, x: Tensor, grad: Tensor | None, beta: Tensor | None):
        self.kernel, self.half_space, self.x, self.grad = kernel, half_space, x, grad
        self.beta = None if beta is None else beta.to(x.dtype)
        self.both_ends = half_space or isinstance(kernel, AngularRiesz)  # these need the distance to the antipode as well
        self.close = ClosePairs(kernel, half_space, weight, grad, beta)
        self.total = torch.zeros(len(x), dtype=wide(x), device=x.device)

    def triangle(self, chunk: int) -> Tensor:
        """Every unordered pair once, counted twice."""
        x, n, beta = self.x, self.x.shape[1], self.beta
        for start in range(0, n, chunk):
            stop = min(start + chunk, n)
            inside = stop - start
            left, right = x[:, start:stop], x[:, start:]
            value, force, close = self._evaluate(left, right, None, None if beta is None else (beta[start:stop], beta[start:]))
            self.total += 2 * value.sum((1, 2)) - value[:, :, :inside].sum((1, 2)) if stop < n else value.sum((1, 2))
            if self.grad is not None:
                self.grad[:, start:stop].baddbmm_(force, right, alpha=4, beta=min(start, 1))
                if stop < n:
                    self.grad[:, stop:].baddbmm_(force[:, :, inside:].mT, left, alpha=4, beta=min(start, 1))
            if close is not None:
                b, i, j, sign = close
                once = j > i
                self.close.add(self.total, b[once], i[once] + start, j[once] + start, sign[once], torch.full_like(sign[once], 2))
        return self.total

    def rows(self, rows: Tensor, counts: Tensor | None, chunk: int) -> Tensor:
        """The given rows against all neurons."""
        x, beta = self.x, self.beta
        times = torch.ones(len(rows), dtype=x.dtype, device=x.device) if counts is None else counts.to(x.dtype)
        for start in range(0, len(rows), chunk):
            i, count = rows[start : start + chunk], times[start : start + chunk]
            left = x[:, i]
            value, force, close = self._evaluate(left, x, i, None if beta is None else (beta[i], beta))
            self.total += (value.sum(2) * count).sum(1)
            if self.grad is not None:
                force = force * count[:, None]
                self.grad.baddbmm_(force.mT, left, alpha=2)
                self.grad.index_add_(1, i, force @ x, alpha=2)
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
        cos = _without_self(left @ right.mT, own)
        close, mask = None, None
        if self.has_close(cos):
            mask = (cos.abs() if self.both_ends else cos) > 1 - closeness(cos) / 2
            close = *mask.nonzero(as_tuple=True), cos[mask].sign()
            cos.masked_fill_(mask, 0)
        if beta is None:
            value, force = self.of_cosines(cos)
        else:
            value, force = self._of_distances(*_squared_distances(cos, beta))
            force = force * beta[0][:, None] * beta[1]
        value, force = _without_self(value, own), _without_self(force, own)
        if mask is not None:
            value, force = value.masked_fill_(mask, 0), force.masked_fill_(mask, 0)
        return value, force, close

    def has_close(self, cos: Tensor) -> bool:
        """Whether any pair is too close for the Gram matrix, or next to antipodal where that matters."""
        least, most = torch.aminmax(cos)
        limit = 1 - closeness(cos) / 2
        return bool(most > limit or (self.both_ends and least < -limit))

    def of_cosines(self, cos: Tensor) -> tuple[Tensor, Tensor]:
        """φ and −dφ/dq of cosines, whose memory may be used."""
        if self.half_space and self.kernel.name == "riesz" and self.kernel.parameter == 2:
            value = torch.addcmul(cos.new_ones(()), cos, cos, value=-1).reciprocal_()  # 1/(2−2c) + 1/(2+2c) = 1/(1−c²)
            return value, cos.mul_(value).mul_(value)
        q = torch.rsub(cos, 2, alpha=2)
        return self._of_distances(q, cos.mul_(2).add_(2) if self.half_space else cos)

    def _of_distances(self, q: Tensor, opposite: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = self.kernel.value_and_slope(q)
        if self.half_space:
            more, less = self.kernel.value_and_slope(opposite)
            return value + more, less - slope
        return value, slope.neg_()


def _without_self(block: Tensor, own: Tensor | None) -> Tensor:
    if own is None:
        block.diagonal(dim1=1, dim2=2).zero_()
    else:
        block[:, torch.arange(len(own), device=own.device), own] = 0
    return block


def _squared_distances(cos: Tensor, beta: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """‖β_iŵ_i ∓ β_jŵ_j‖², so that a zero row, whose cosines are 0, counts as orthogonal to all."""
    if beta is None:
        return 2 - 2 * cos, 2 + 2 * cos
    lengths, product = beta[0].square()[:, None] + beta[1].square(), 2 * beta[0][:, None] * beta[1]
    return lengths - product * cos, lengths + product * cos


def _directions(weight: Tensor) -> tuple[Tensor, Tensor]:
    """ŵ, 0 for a zero row, and ‖w‖; where a square may overflow or vanish, entries are scaled by the largest first."""
    x = weight.detach().to(torch.promote_types(weight.dtype, torch.float32)).contiguous()
    length = torch.linalg.vector_norm(x, dim=2, keepdim=True)
    least, most = torch.aminmax(length)
    if least > 1e-12 and most < 1e15:
        return x / length, length
    scale = x.abs().amax(2, keepdim=True)
    x = x / scale.clamp_min(torch.finfo(x.dtype).tiny)
    length = torch.linalg.vector_norm(x, dim=2, keepdim=True)
    return x.div_(length.clamp_min(1 / 2)), length * scale


def _through_normalization(grad: Tensor, x: Tensor, length: Tensor) -> Tensor:
    """(I − ŵŵᵀ)g/‖w‖, 0 for a zero row; the division is by no less than 10⁻²⁰, where float32 would overflow."""
    grad.addcmul_(x, torch.linalg.vecdot(grad, x).unsqueeze(-1), value=-1)
    return grad.mul_(torch.where(length > 0, 1 / length.clamp_min(1e-20), 0))
