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
    """Directions first, then a few matrices at a time in the same memory."""
    x, length = directions(weight)
    batch, n, _ = x.shape
    sums, grad = x.new_empty(batch), torch.empty_like(x) if gradient else None
    together = min(batch, max(1, ENTRIES // n**2))
    cosines, scratch = x.new_empty(2, together, n, n)
    for first in range(0, batch, together):
        part = slice(first, first + together)
        here, there = x[part], None if grad is None else grad[part]
        cos = without_self(torch.bmm(here, here.mT, out=cosines[: len(here)]), None)
        work = Pass(kernel, half_space, weight[part], here, there, None)
        if work.has_close(cos):
            sums[part] = work.triangle(n)
            continue
        value, force = work.of_cosines(cos, scratch[: len(here)])
        sums[part] = without_self(value, None).sum((1, 2))
        if there is not None:
            # the forces are symmetric, and a product with few rows is several times faster than one with few columns
            torch.mul(torch.bmm(here.mT, without_self(force, None)).mT, 4, out=there)
    return sums, x.new_empty(0) if grad is None else through_direction(grad, x, length).to(weight.dtype)
