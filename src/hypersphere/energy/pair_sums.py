r"""Sums of a kernel over all pairs of neurons, with their gradient, in chunks of rows: memory O(N·chunk), not O(N²).

One pass over the upper triangle of the Gram matrix computes the value and the gradient, so the backward pass only
multiplies the stored gradient by the incoming one. If a pair is so close that 2 − 2cos θ loses digits, its distance is
recomputed from the difference of the directions. All sums are computed in float32 or better, also under autocast.
``torch.compile`` treats the whole sum as one opaque operator.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import accumulation_dtype, disable_autocast, normalize
from ..geometry.fast_norms import directions, directions_backward, gram_cosines
from .gram_blocks import Pass, squared_distances, wide_dtype, zero_self_pairs
from .kernels import Kernel, rebuild_kernel

CHUNK_ENTRIES = 1 << 19  # entries per chunk of the Gram matrix, which stays in the cache between operations
MAX_NEURONS_IN_ONE_BLOCK = 256  # up to this number, skipping the lower triangle is not faster
# Entries of the Gram matrices per block. Smaller blocks need more calls, larger ones exceed the cache.
BLOCK_ENTRIES = 1 << 19
MIN_NEURONS_TO_HALVE = 256  # from this number on, skipping a quarter of the Gram matrix saves more than the calls cost


def pair_sums(
    weight: Float[Tensor, "batch neurons dim"],
    kernel: Kernel,
    *,
    half_space: bool = False,
    importance: Float[Tensor, " neurons"] | None = None,
    rows: Int[Tensor, " rows"] | None = None,
    counts: Float[Tensor, " rows"] | None = None,
    columns: int | None = None,
    chunk: int | None = None,
) -> Float[Tensor, " batch"]:
    r"""Return Σ_{i≠j} φ(q_ij) over ordered pairs, with q_ij = ‖ŵ_i − ŵ_j‖², for each matrix of a batch.

    ``half_space`` adds φ(4 − q_ij). The sums can be differentiated twice; the second derivative needs memory O(N²).

    Args:
        weight: The neurons in rows.
        kernel: The kernel φ.
        half_space: Whether to add the energy between neurons and antipodes −ŵ_j.
        importance: β: the energy is that of the points β_i·ŵ_i instead of ŵ_i.
        rows: Indices of the neurons i; all if None.
        counts: Weight of each of ``rows``; 1 if None.
        columns: Number of leading neurons j; all if None. Requires ``rows``.
        chunk: Number of rows of the Gram matrix per block; None chooses it.

    >>> from hypersphere.energy.kernels import Riesz
    >>> pair_sums(torch.eye(3)[None], Riesz(2))
    tensor([3.])
    """
    assert columns is None or rows is not None
    chunk = chunk or _choose_chunk(weight)
    gradient = torch.is_grad_enabled() and weight.requires_grad
    if torch.compiler.is_compiling():
        name, numbers = type(kernel).__module__ + "." + type(kernel).__qualname__, list(kernel.parameters)
        sums, _ = _operator(weight, importance, rows, counts, name, numbers, columns, half_space, chunk, gradient)
    else:  # not by the operator, because its first call imports the compiler
        sums, _ = _PairSums.apply(weight, importance, rows, counts, kernel, columns, half_space, chunk, gradient)
    return sums


def value_and_gradient(
    weight: Float[Tensor, "batch neurons dim"], kernel: Kernel, half_space: bool = False
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch neurons dim"]]:
    """Return :func:`pair_sums` and their gradient, without autograd."""
    return _compute(weight, None, None, None, kernel, None, half_space, _choose_chunk(weight), True)


def _choose_chunk(weight: Tensor) -> int:
    """Return the number of rows per block: all if there are few, otherwise at most a quarter, to skip the lower triangle."""
    n = weight.shape[1]
    return n if n <= MAX_NEURONS_IN_ONE_BLOCK else max(64, min(max(128, n // 4), CHUNK_ENTRIES // n))


def _compute(
    weight: Tensor,
    importance: Tensor | None,
    rows: Tensor | None,
    counts: Tensor | None,
    kernel: Kernel,
    columns: int | None,
    half_space: bool,
    chunk: int,
    gradient: bool,
) -> tuple[Tensor, Tensor]:
    kernel = kernel.for_dimension(weight.shape[-1])
    with disable_autocast(weight.device.type):
        if rows is None and importance is None and weight.shape[1] <= chunk:
            return whole_gram_sums(kernel, half_space, weight, gradient)
        x, length = directions(weight)
        grad = (torch.empty_like(x) if rows is None else torch.zeros_like(x)) if gradient else None
        sums = torch.empty(len(x), dtype=wide_dtype(x), device=x.device)
        matrices = max(1, CHUNK_ENTRIES // (min(chunk, x.shape[1]) * x.shape[1]))
        for first in range(0, len(x), matrices):
            part = slice(first, first + matrices)
            pass_ = Pass(kernel, half_space, weight[part], x[part], None if grad is None else grad[part], importance)
            sums[part] = pass_.triangle(chunk) if rows is None else pass_.rows(rows, counts, chunk, columns)
        if grad is None:
            return sums.to(x.dtype), x.new_empty(0)
        return sums.to(x.dtype), directions_backward(grad, x, length).to(weight.dtype)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    weight, importance, rows, counts, *kernel, columns, half_space, _, _ = inputs
    ctx.save_for_backward(weight, importance, rows, counts, output[1])
    ctx.kernel, ctx.columns = kernel[0] if len(kernel) == 1 else rebuild_kernel(*kernel), columns
    ctx.half_space = half_space
    ctx.no_gradients = [None] * (len(inputs) - 1)


def _backward(ctx: Any, grad_sums: Tensor, _: Any) -> tuple[Any, ...]:
    weight, importance, rows, counts, grad = ctx.saved_tensors
    if torch.is_grad_enabled():  # create_graph=True: recompute the gradient as a differentiable function of the weight
        sums = dense_sums(weight, ctx.kernel, ctx.half_space, importance, rows, counts, ctx.columns)
        (grad,) = torch.autograd.grad(sums.sum(), weight, create_graph=True)
    return (grad_sums[:, None, None].to(grad.dtype) * grad, *ctx.no_gradients)


class _PairSums(torch.autograd.Function):
    """The sums and their gradient. The forward pass computes both; the backward pass scales the gradient."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        return _compute(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        _save_for_backward(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return _backward(ctx, *grads)


def _compute_by_name(*inputs: Any) -> tuple[Tensor, Tensor]:
    weight, importance, rows, counts, name, numbers, *options = inputs
    return _compute(weight, importance, rows, counts, rebuild_kernel(name, numbers), *options)


_operator = torch.library.custom_op(
    "hypersphere::pair_sums",
    _compute_by_name,
    mutates_args=(),
    schema="(Tensor weight, Tensor? importance, Tensor? rows, Tensor? counts, str kernel, float[] parameters,"
    " int? columns, bool half_space, int chunk, bool gradient) -> (Tensor, Tensor)",
)
_operator.register_autograd(_backward, setup_context=_save_for_backward)


@_operator.register_fake
def _make_outputs(*inputs: Any) -> tuple[Tensor, Tensor]:
    weight, gradient = inputs[0], inputs[-1]
    sums = weight.new_empty(weight.shape[0], dtype=accumulation_dtype(weight))
    return sums, torch.empty_like(weight) if gradient else sums.new_empty(0)


def dense_sums(
    weight: Float[Tensor, "batch neurons dim"],
    kernel: Kernel,
    half_space: bool = False,
    importance: Float[Tensor, " neurons"] | None = None,
    rows: Int[Tensor, " rows"] | None = None,
    counts: Float[Tensor, " rows"] | None = None,
    columns: int | None = None,
) -> Float[Tensor, " batch"]:
    """Compute :func:`pair_sums` by differentiable operations on the whole Gram matrix, in float64 for close pairs."""
    kernel = kernel.for_dimension(weight.shape[-1])
    with disable_autocast(weight.device.type):
        x = normalize(weight.to(wide_dtype(weight)))
        n = torch.arange(x.shape[1] if columns is None else columns, device=x.device)
        i = n if rows is None else rows
        beta = None if importance is None else (importance.to(x.dtype)[i], importance.to(x.dtype)[: len(n)])
        q, opposite = squared_distances(x[:, i] @ x[:, : len(n)].mT, beta)
        value = kernel(q) + kernel(opposite) if half_space else kernel(q)
        value = value.masked_fill(i[:, None] == n, 0)
        if counts is not None:
            value = value * counts.to(value.dtype)[:, None]
        return value.sum((1, 2)).to(accumulation_dtype(weight))


def whole_gram_sums(kernel: Kernel, half_space: bool, weight: Tensor, gradient: bool) -> tuple[Tensor, Tensor]:
    """Return Σ_{i≠j} φ for each matrix of a batch, and the gradient, or an empty tensor without ``gradient``."""
    if weight.shape[1] <= weight.shape[2]:
        result = _sum_by_two_products(kernel, half_space, weight, gradient)
        if result is not None:
            return result
    return _sum_by_blocks(kernel, half_space, weight, gradient)


def _sum_by_two_products(
    kernel: Kernel, half_space: bool, weight: Tensor, gradient: bool
) -> tuple[Tensor, Tensor] | None:
    r"""Return the sums and the gradient for N ≤ d by two matrix products, or None if they are not accurate.

    With the Gram matrix C of ŵ, D = diag(1/‖w‖) and the forces F = −dφ/dq, row i of the gradient is
    4/‖w_i‖·(I − ŵ_iŵ_iᵀ)·Σ_j F_ij ŵ_j. All rows together are 4·D(F − diag(F∘C·1))D·W. The products are not
    accurate for close pairs, zero rows, and rows that are extremely long or short.
    """
    x = weight.detach().to(accumulation_dtype(weight))
    pass_ = Pass(kernel, half_space, weight, x, None, None)
    cos, inverse = gram_cosines(x)
    zero_self_pairs(cos, None)
    least, most = torch.aminmax(inverse)
    if not (least > 1e-8 and most < 1e8) or pass_.has_close(cos):
        return None
    cosines = cos.clone() if half_space and gradient else cos  # half space overwrites the cosines
    value, force = pass_.evaluate_cosines(cos, torch.empty_like(cos))
    sums = zero_self_pairs(value, None).sum((1, 2))
    if not gradient:
        return sums, x.new_empty(0)
    radial = torch.linalg.vecdot(zero_self_pairs(force, None), cosines)
    force.diagonal(dim1=1, dim2=2).sub_(radial)
    force.mul_((4 * inverse).unsqueeze(2)).mul_(inverse.unsqueeze(1))
    return sums, (force @ x).to(weight.dtype)


def _sum_by_blocks(kernel: Kernel, half_space: bool, weight: Tensor, gradient: bool) -> tuple[Tensor, Tensor]:
    """Return the sums and the gradient, computed in blocks of a few matrices that reuse the same memory.

    Matrices with a close pair are then computed again by :meth:`Pass.triangle`.
    """
    x, length = directions(weight)
    pass_ = Pass(kernel, half_space, weight, x, None, None)
    per_block = min(len(x), max(1, BLOCK_ENTRIES // x.shape[1] ** 2))
    sums, extremes, pulls = _evaluate_blocks(pass_, per_block, gradient)
    grad = None
    if pulls is not None:
        grad = torch.empty_like(x)
        torch.mul(pulls.permute(1, 0, 3, 2), 4, out=grad.unflatten(1, (len(pulls), -1)))
        del pulls  # frees its memory for the operations below
    for number in pass_.close_blocks(*extremes):
        close = _find_close_matrices(pass_, number * per_block, (number + 1) * per_block)
        if close:
            close_grad = None if grad is None else grad[close]
            close_pass = Pass(kernel, half_space, weight[close], x[close], close_grad, None)
            sums[close] = close_pass.triangle(x.shape[1]).to(sums.dtype)
            if grad is not None and close_grad is not None:
                grad[close] = close_grad
    return sums, x.new_empty(0) if grad is None else directions_backward(grad, x, length).to(weight.dtype)


def _evaluate_blocks(pass_: Pass, per_block: int, gradient: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the sums, the smallest and the largest cosine of each block, and the pulls Σ_j F_ij ŵ_j or None.

    A block has ``per_block`` matrices. The pulls are transposed: (parts, batch, dim, n/parts). From 256 neurons on, if
    their number is even, they are split into two parts. The lower left quarter of the Gram matrix is then skipped,
    because it is the transpose of the upper right one.
    """
    (batch, n, dim), x = pass_.x.shape, pass_.x
    parts = 2 if n >= MIN_NEURONS_TO_HALVE and n % 2 == 0 else 1
    pairs = [(0, 0)] if parts == 1 else [(0, 0), (1, 1), (0, 1)]
    size = n // parts
    pulls = x.new_empty(parts, batch, dim, size) if gradient else None
    cosines, scratch = x.new_empty(2, len(pairs) * per_block, size, size)
    blocks = list(zip(*[half.split(per_block) for half in x.unflatten(1, (parts, size)).unbind(1)], strict=True))
    block_pulls = None if pulls is None else list(zip(*[half.split(per_block) for half in pulls], strict=True))
    quarter_sums, extremes = x.new_empty(len(pairs), batch), x.new_empty(2, len(blocks))
    block_sums = quarter_sums.split(per_block, 1)
    for number, rows in enumerate(blocks):
        count = len(rows[0])
        if len(pairs) * count < len(cosines):
            cosines, scratch = cosines[: len(pairs) * count], scratch[: len(pairs) * count]
        for (i, j), quarter in zip(pairs, cosines.split(count), strict=True):
            torch.bmm(rows[i], rows[j].mT, out=quarter)
        zero_self_pairs(cosines[: parts * count], None)
        torch.aminmax(cosines, out=(extremes[0, number], extremes[1, number]))
        value, force = pass_.evaluate_cosines(cosines, scratch)
        zero_self_pairs(value[: parts * count], None)
        torch.sum(value.unflatten(0, (len(pairs), count)), (2, 3), out=block_sums[number])
        if block_pulls is not None:
            if not pass_.half_space:  # in half space the forces of a neuron on itself and on its antipode cancel
                zero_self_pairs(force[: parts * count], None)
            _write_pulls(block_pulls[number], rows, pairs, force.split(count))
    return quarter_sums[:parts].sum(0).add_(quarter_sums[parts:].sum(0), alpha=2), extremes, pulls


def _find_close_matrices(pass_: Pass, start: int, stop: int) -> list[int]:
    """Return the indices of the matrices in [start, stop) that have a close pair, each tested separately."""
    x = pass_.x[start:stop]
    cos = zero_self_pairs(x @ x.mT, None)
    return [start + number for number in pass_.close_blocks(cos.amin((1, 2)), cos.amax((1, 2)))]


def _write_pulls(
    out: Sequence[Tensor], rows: Sequence[Tensor], pairs: Sequence[tuple[int, int]], forces: Sequence[Tensor]
) -> None:
    """Write Σ_j F_ij ŵ_j into the columns of ``out``. Diagonal blocks of F come first and are symmetric.

    The pulls are columns because a product with few rows is several times faster than one with few columns.
    """
    for (i, j), force in zip(pairs, forces, strict=True):
        if i == j:
            torch.bmm(rows[i].mT, force, out=out[i])
        else:
            out[j].baddbmm_(rows[i].mT, force)
            out[i].baddbmm_(rows[j].mT, force.mT)
