"""The sums over all pairs of few neurons, whose Gram matrix stays in the cache as a whole, for one matrix or many."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..geometry.fast_norms import directions, directions_backward, gram_cosines
from .gram_blocks import Pass, zero_self_pairs
from .kernels import Kernel

BLOCK_ENTRIES = 1 << 19  # of the Gram matrices that are done together: fewer cost more calls, more leave the cache
HALVED = 256  # neurons from which saving a quarter of the pairs is worth the calls


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
