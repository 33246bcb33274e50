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
from ..geometry.fast_norms import directions, directions_backward
from .gram_blocks import Pass, squared_distances, wide_dtype
from .kernels import Kernel, rebuild_kernel
from .whole_gram import whole_gram_sums

CHUNK_ENTRIES = 1 << 19  # of one chunk of the Gram matrix: small enough to stay in the cache between the passes over it
MAX_NEURONS_IN_ONE_BLOCK = 256  # up to this number, skipping the lower triangle is not faster


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
