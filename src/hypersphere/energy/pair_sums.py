r"""Sums of a kernel over all pairs of neurons, with their gradient, in chunks of rows: memory O(N·chunk), not O(N²).

Value and gradient come out of one pass over the upper triangle of the Gram matrix, so the backward pass is a
multiplication. If a pair is so close that 2 − 2cos θ has lost its digits, it is computed again from the difference of its neurons.
Computed in float32 or better, also under autocast; to ``torch.compile`` the whole sum is one opaque operator.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import normalize
from ..geometry.fast_norms import directions, directions_backward, gram_cosines
from .gram_blocks import Pass, squared_distances, wide_dtype, zero_self_pairs
from .kernels import Kernel, rebuild_kernel

CHUNK_ENTRIES = 1 << 19  # of one chunk of the Gram matrix: small enough to stay in the cache between the passes over it
MAX_NEURONS_IN_ONE_BLOCK = 256  # up to this number, skipping the lower triangle is not faster
BLOCK_ENTRIES = 1 << 19  # of the Gram matrices that are done together: fewer cost more calls, more leave the cache
HALVED = 256  # neurons from which saving a quarter of the pairs is worth the calls


def pair_sums(
    weight: Float[Tensor, "batch neurons dim"],
    kernel: Kernel,
    *,
    half_space: bool = False,
    importance: Float[Tensor, " neurons"] | None = None,
    rows: Int[Tensor, " rows"] | None = None,
    counts: Float[Tensor, " rows"] | None = None,
    among: int | None = None,
    chunk: int | None = None,
) -> Float[Tensor, " batch"]:
    r"""Return Σ_{i≠j} φ(‖ŵ_i − ŵ_j‖²) over ordered pairs, for each matrix of a batch; in half space φ(q) + φ(4 − q).

    ``rows`` restricts i to those neurons, each counted ``counts`` times, and ``among`` restricts j to the
    first ones. ``importance`` puts the neurons at β_i·ŵ_i. ``chunk`` is the number of rows done at a time.
    Differentiable twice: the second derivative forms all pairs at once.

    >>> from hypersphere.energy.kernels import Riesz
    >>> pair_sums(torch.eye(3)[None], Riesz(2))
    tensor([3.])
    """
    assert among is None or rows is not None
    chunk = chunk or _rows_at_a_time(weight)
    gradient = torch.is_grad_enabled() and weight.requires_grad
    if torch.compiler.is_compiling():
        name, numbers = type(kernel).__module__ + "." + type(kernel).__qualname__, list(kernel.parameters)
        sums, _ = _operator(weight, importance, rows, counts, name, numbers, among, half_space, chunk, gradient)
    else:  # the operator would cost its first caller the import of the compiler
        sums, _ = _PairSums.apply(weight, importance, rows, counts, kernel, among, half_space, chunk, gradient)
    return sums


def value_and_gradient(
    weight: Float[Tensor, "batch neurons dim"], kernel: Kernel, half_space: bool = False
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch neurons dim"]]:
    """Return :func:`pair_sums` and their gradient at once, without autograd."""
    return _compute(weight, None, None, None, kernel, None, half_space, _rows_at_a_time(weight), True)


def _rows_at_a_time(weight: Tensor) -> int:
    """Return the rows of a block: all if there are few, else a quarter, so that the lower triangle is saved, within a chunk's entries."""
    n = weight.shape[1]
    return n if n <= MAX_NEURONS_IN_ONE_BLOCK else max(64, min(max(128, n // 4), CHUNK_ENTRIES // n))


def _compute(
    weight: Tensor,
    importance: Tensor | None,
    rows: Tensor | None,
    counts: Tensor | None,
    kernel: Kernel,
    among: int | None,
    half_space: bool,
    chunk: int,
    gradient: bool,
) -> tuple[Tensor, Tensor]:
    kernel = kernel.for_dimension(weight.shape[-1])
    with torch.autocast(weight.device.type, enabled=False):
        if rows is None and importance is None and weight.shape[1] <= chunk:
            return whole_gram_sums(kernel, half_space, weight, gradient)
        x, length = directions(weight)
        grad = (torch.empty_like(x) if rows is None else torch.zeros_like(x)) if gradient else None
        sums = torch.empty(len(x), dtype=wide_dtype(x), device=x.device)
        together = max(1, CHUNK_ENTRIES // (min(chunk, x.shape[1]) * x.shape[1]))
        for first in range(0, len(x), together):
            part = slice(first, first + together)
            work = Pass(kernel, half_space, weight[part], x[part], None if grad is None else grad[part], importance)
            sums[part] = work.triangle(chunk) if rows is None else work.rows(rows, counts, chunk, among)
        if grad is None:
            return sums.to(x.dtype), x.new_empty(0)
        return sums.to(x.dtype), directions_backward(grad, x, length).to(weight.dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    weight, importance, rows, counts, *kernel, among, half_space, _, _ = inputs
    ctx.save_for_backward(weight, importance, rows, counts, output[1])
    ctx.kernel, ctx.among = kernel[0] if len(kernel) == 1 else rebuild_kernel(*kernel), among
    ctx.half_space = half_space
    ctx.rest = [None] * (len(inputs) - 1)


def _backward(ctx: Any, grad_sums: Tensor, _: Any) -> tuple[Any, ...]:
    weight, importance, rows, counts, grad = ctx.saved_tensors
    if torch.is_grad_enabled():  # a second derivative is wanted: the same gradient, as a function of the weight
        sums = dense_sums(weight, ctx.kernel, ctx.half_space, importance, rows, counts, ctx.among)
        (grad,) = torch.autograd.grad(sums.sum(), weight, create_graph=True)
    return (grad_sums[:, None, None].to(grad.dtype) * grad, *ctx.rest)


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


def _compute_rebuilt(*inputs: Any) -> tuple[Tensor, Tensor]:
    weight, importance, rows, counts, name, numbers, *rest = inputs
    return _compute(weight, importance, rows, counts, rebuild_kernel(name, numbers), *rest)


_operator = torch.library.custom_op(
    "hypersphere::pair_sums",
    _compute_rebuilt,
    mutates_args=(),
    schema="(Tensor weight, Tensor? importance, Tensor? rows, Tensor? counts, str kernel, float[] parameters,"
    " int? among, bool half_space, int chunk, bool gradient) -> (Tensor, Tensor)",
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
    among: int | None = None,
) -> Float[Tensor, " batch"]:
    """Return :func:`pair_sums` by differentiable operations on the whole Gram matrix, in float64 for the sake of close pairs."""
    kernel = kernel.for_dimension(weight.shape[-1])
    with torch.autocast(weight.device.type, enabled=False):
        x = normalize(weight.to(wide_dtype(weight)))
        n = torch.arange(x.shape[1] if among is None else among, device=x.device)
        i = n if rows is None else rows
        beta = None if importance is None else (importance.to(x.dtype)[i], importance.to(x.dtype)[: len(n)])
        q, opposite = squared_distances(x[:, i] @ x[:, : len(n)].mT, beta)
        value = kernel(q) + kernel(opposite) if half_space else kernel(q)
        value = value.masked_fill(i[:, None] == n, 0)
        if counts is not None:
            value = value * counts.to(value.dtype)[:, None]
        return value.sum((1, 2)).to(torch.promote_types(weight.dtype, torch.float32))


def whole_gram_sums(kernel: Kernel, half_space: bool, weight: Tensor, gradient: bool) -> tuple[Tensor, Tensor]:
    """Return Σ_{i≠j} φ for each matrix of a batch, and the gradient, empty unless wanted."""
    done = _long(kernel, half_space, weight, gradient) if weight.shape[1] <= weight.shape[2] else None
    return _short(kernel, half_space, weight, gradient) if done is None else done


def _long(kernel: Kernel, half_space: bool, weight: Tensor, gradient: bool) -> tuple[Tensor, Tensor] | None:
    r"""Compute the sums for neurons of many dimensions by two matrix products; return None if that is not exact.

    With the Gram matrix C of ŵ, D = diag(1/‖w‖) and F the forces, the gradient 4·D(I − ŵŵᵀ)Fŵ, row by row, is
    4·D(F − diag(F∘C·1))D·W. Close pairs, zero rows and lengths whose squares lose digits need more care.
    """
    x = weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
    work = Pass(kernel, half_space, weight, x, None, None)
    cos, inverse = gram_cosines(x)
    zero_self_pairs(cos, None)
    least, most = torch.aminmax(inverse)
    if not (least > 1e-8 and most < 1e8) or work.has_close(cos):
        return None
    kept = cos.clone() if half_space and gradient else cos  # half space uses its memory
    value, force = work.evaluate_cosines(cos, torch.empty_like(cos))
    sums = zero_self_pairs(value, None).sum((1, 2))
    if not gradient:
        return sums, x.new_empty(0)
    radial = torch.linalg.vecdot(zero_self_pairs(force, None), kept)
    force.diagonal(dim1=1, dim2=2).sub_(radial)
    force.mul_((4 * inverse).unsqueeze(2)).mul_(inverse.unsqueeze(1))
    return sums, (force @ x).to(weight.dtype)


def _short(kernel: Kernel, half_space: bool, weight: Tensor, gradient: bool) -> tuple[Tensor, Tensor]:
    """Compute the sums a few matrices at a time in the same memory; matrices with a close pair are computed again."""
    x, length = directions(weight)
    work, together = (
        Pass(kernel, half_space, weight, x, None, None),
        min(len(x), max(1, BLOCK_ENTRIES // x.shape[1] ** 2)),
    )
    sums, extremes, turned = _block_sums(work, together, gradient)
    grad = None
    if turned is not None:
        grad = torch.empty_like(x)
        torch.mul(turned.permute(1, 0, 3, 2), 4, out=grad.unflatten(1, (len(turned), -1)))
        del turned  # its memory is used again below
    for number in work.close_blocks(*extremes):
        which = _close_ones(work, number * together, (number + 1) * together)
        if which:
            there = None if grad is None else grad[which]
            again = Pass(kernel, half_space, weight[which], x[which], there, None)
            sums[which] = again.triangle(x.shape[1]).to(sums.dtype)
            if grad is not None and there is not None:
                grad[which] = there
    return sums, x.new_empty(0) if grad is None else directions_backward(grad, x, length).to(weight.dtype)


def _block_sums(work: Pass, together: int, gradient: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the sums, the extreme cosines of every ``together`` matrices, and Σ_j F_ij ŵ_j, (parts, batch, dim, n/parts).

    Of many neurons, which have two parts, a quarter of the Gram matrix is left out: it is the upper right one, turned.
    """
    (batch, n, dim), x = work.x.shape, work.x
    parts = 2 if n >= HALVED and n % 2 == 0 else 1
    pairs = [(0, 0)] if parts == 1 else [(0, 0), (1, 1), (0, 1)]
    size = n // parts
    turned = x.new_empty(parts, batch, dim, size) if gradient else None
    cosines, scratch = x.new_empty(2, len(pairs) * together, size, size)
    steps = list(zip(*[half.split(together) for half in x.unflatten(1, (parts, size)).unbind(1)], strict=True))
    out = None if turned is None else list(zip(*[half.split(together) for half in turned], strict=True))
    each, extremes = x.new_empty(len(pairs), batch), x.new_empty(2, len(steps))
    own = each.split(together, 1)
    for number, rows in enumerate(steps):
        here = len(rows[0])
        if len(pairs) * here < len(cosines):
            cosines, scratch = cosines[: len(pairs) * here], scratch[: len(pairs) * here]
        for (i, j), block in zip(pairs, cosines.split(here), strict=True):
            torch.bmm(rows[i], rows[j].mT, out=block)
        zero_self_pairs(cosines[: parts * here], None)
        torch.aminmax(cosines, out=(extremes[0, number], extremes[1, number]))
        value, force = work.evaluate_cosines(cosines, scratch)
        zero_self_pairs(value[: parts * here], None)
        torch.sum(value.unflatten(0, (len(pairs), here)), (2, 3), out=own[number])
        if out is not None:
            if not work.half_space:  # there a neuron's pulls on itself and on its opposite cancel
                zero_self_pairs(force[: parts * here], None)
            _add_forces(out[number], rows, pairs, force.split(here))
    return each[:parts].sum(0).add_(each[parts:].sum(0), alpha=2), extremes, turned


def _close_ones(work: Pass, start: int, stop: int) -> list[int]:
    """Return the numbers of those matrices between the two that have a close pair: each is done as it would be alone."""
    x = work.x[start:stop]
    cos = zero_self_pairs(x @ x.mT, None)
    return [start + number for number in work.close_blocks(cos.amin((1, 2)), cos.amax((1, 2)))]


def _add_forces(
    out: Sequence[Tensor], rows: Sequence[Tensor], pairs: Sequence[tuple[int, int]], forces: Sequence[Tensor]
) -> None:
    """Return Σ_j F_ij ŵ_j into the columns of ``out``; blocks on the diagonal are first, and symmetric.

    A product with few rows is several times faster than one with few columns.
    """
    for (i, j), force in zip(pairs, forces, strict=True):
        if i == j:
            torch.bmm(rows[i].mT, force, out=out[i])
        else:
            out[j].baddbmm_(rows[i].mT, force)
            out[i].baddbmm_(rows[j].mT, force.mT)
