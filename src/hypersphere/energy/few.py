"""The sums over all pairs of few neurons, whose Gram matrix stays in the cache as a whole, for one matrix or many."""

import torch
from torch import Tensor

from ..geometry.directions import directions, gram_cosines, through_direction
from .gram_blocks import Pass, without_self
from .kernels import Kernel

ENTRIES = 1 << 17  # of the Gram matrices that are done together


def few_neurons(kernel: Kernel, half_space: bool, weight: Tensor, gradient: bool) -> tuple[Tensor, Tensor]:
    """Σ_{i≠j} φ for each matrix of a batch, and the gradient, empty unless wanted."""
    done = _long(kernel, half_space, weight, gradient) if weight.shape[1] <= weight.shape[2] else None
    return _short(kernel, half_space, weight, gradient) if done is None else done


def _long(kernel: Kernel, half_space: bool, weight: Tensor, gradient: bool) -> tuple[Tensor, Tensor] | None:
    r"""Neurons of many dimensions, by two products and nothing else of their size; None if that is not exact.

    With the Gram matrix C of ŵ, D = diag(1/‖w‖) and F the forces, the gradient 4·D(I − ŵŵᵀ)Fŵ, row by row, is
    4·D(F − diag(F∘C·1))D·W. Close pairs, zero rows and lengths whose squares lose digits need more care.
    """
    x = weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
    work = Pass(kernel, half_space, weight, x, None, None)
    cos, inverse = gram_cosines(x)
    without_self(cos, None)
    least, most = torch.aminmax(inverse)
    if not (least > 1e-8 and most < 1e8) or work.has_close(cos):
        return None
    kept = cos.clone() if half_space and gradient else cos  # half space uses its memory
    value, force = work.of_cosines(cos, torch.empty_like(cos))
    sums = without_self(value, None).sum((1, 2))
    if not gradient:
        return sums, x.new_empty(0)
    radial = torch.linalg.vecdot(without_self(force, None), kept)
    force.diagonal(dim1=1, dim2=2).sub_(radial)
    force.mul_((4 * inverse).unsqueeze(2)).mul_(inverse.unsqueeze(1))
    return sums, (force @ x).to(weight.dtype)


def _short(kernel: Kernel, half_space: bool, weight: Tensor, gradient: bool) -> tuple[Tensor, Tensor]:
    """Directions first, then a few matrices at a time in the same memory; those with close pairs are done over after."""
    x, length = directions(weight)
    batch, n, dim = x.shape
    sums, turned = x.new_empty(batch), x.new_empty(batch, dim, n) if gradient else None
    together = min(batch, max(1, ENTRIES // n**2))
    cosines, scratch = x.new_empty(2, together, n, n)
    work = Pass(kernel, half_space, weight, x, None, None)
    here, own = x.split(together), sums.split(together)
    out = None if turned is None else turned.split(together)
    extremes = x.new_empty(2, len(here))
    least, most = (end.unbind() for end in extremes)
    for number, rows in enumerate(here):
        columns = rows.mT
        if len(rows) < len(cosines):
            cosines, scratch = cosines[: len(rows)], scratch[: len(rows)]
        cos = without_self(torch.bmm(rows, columns, out=cosines), None)
        torch.aminmax(cos, out=(least[number], most[number]))
        value, force = work.of_cosines(cos, scratch)
        torch.sum(without_self(value, None), (1, 2), out=own[number])
        if out is not None:
            if not half_space:  # there a neuron's pulls on itself and on its opposite cancel
                without_self(force, None)
            # the forces are symmetric, and a product with few rows is several times faster than one with few columns
            torch.bmm(columns, force, out=out[number])
    grad = None if turned is None else torch.mul(turned.mT, 4, out=torch.empty_like(x))
    for number in work.close_blocks(*extremes):
        part = slice(number * together, (number + 1) * together)
        again = Pass(kernel, half_space, weight[part], x[part], None if grad is None else grad[part], None)
        sums[part] = again.triangle(n)
    return sums, x.new_empty(0) if grad is None else through_direction(grad, x, length).to(weight.dtype)
