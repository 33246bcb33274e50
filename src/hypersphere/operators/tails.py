r"""From inner products to an operator's output, h·g(P/‖x‖) + b, by one pass over the outputs forward and one backward.

Plain autograd goes over maps of the output's size about ten times, and keeps three of them. Here a few samples at a time,
as many as stay in the processor's cache, go through the whole chain, and back by the slope of g that
:meth:`~hypersphere.angular.Angular.slope_of` knows in closed form. Only the inner products and g are kept.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..angular import Angular
from ..geometry.tracing import is_traced

TILE = 2**16
"""Outputs at a time on a CPU: 256 KiB in float32, of which three or four fit into a second-level cache."""


def angular_tail(
    product: Float[Tensor, "..."],
    over: Float[Tensor, "..."],
    h: Float[Tensor, "..."],
    bias: Float[Tensor, "..."] | None,
    angular: Angular,
) -> Float[Tensor, "..."] | None:
    """h·g(product·over) + bias; None where g has no slope in closed form or someone looks into the operations.

    ``over`` and ``h`` have the axes of ``product``, each of its size or of 1 beyond the first; ``bias`` broadcasts.

    >>> from hypersphere.angular import SquareCosine
    >>> angular_tail(torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5]]), torch.tensor([[3.0]]), None, SquareCosine())
    tensor([[ 0.7500, -3.0000]])
    """
    if is_traced() or not product.dtype == over.dtype == h.dtype or product.ndim != h.ndim or not product.numel():
        return None
    one = product.new_zeros(1)
    if type(angular).slope_of is Angular.slope_of or angular.slope_of(one, one) is None:
        return None
    result: Tensor = _Tail.apply(product, over, h, bias, angular)
    return result


class _Tail(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, product: Tensor, over: Tensor, h: Tensor, bias: Tensor | None, angular: Angular) -> Tensor:
        result, g = torch.empty_like(product), torch.empty_like(product)
        for part in _tiles(product):
            g[part] = here = angular(product[part] * over[part])
            if bias is None:
                torch.mul(here, h[part], out=result[part])
            else:
                torch.addcmul(bias, here, h[part], out=result[part])
        ctx.save_for_backward(product, over, h, bias, g)
        ctx.angular = angular
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, over, h, bias, g = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():
            return (*_backward_plainly((product, over, h, bias), ctx.angular, grad, needs[:4]), None)
        d_product, d_over = torch.empty_like(product), torch.empty_like(over)
        d_h = torch.empty_like(h) if needs[2] else None
        for part in _tiles(product):
            arrived = grad[part]
            slope = ctx.angular.slope_of(product[part] * over[part], g[part])
            slope.mul_(arrived).mul_(h[part])
            torch.mul(slope, over[part], out=d_product[part])
            d_over[part] = slope.mul_(product[part]).sum_to_size(over[part].shape)
            if d_h is not None:
                d_h[part] = (g[part] * arrived).sum_to_size(h[part].shape)
        d_bias = grad.sum_to_size(bias.shape) if bias is not None and needs[3] else None
        return d_product, d_over, d_h, d_bias, None


def _tiles(product: Tensor) -> Iterator[slice]:
    """Parts of the first axis; all of it on a device that wants to be filled."""
    n = product.shape[0]
    size = max(1, TILE * n // product.numel()) if product.device.type == "cpu" else n
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _backward_plainly(
    inputs: tuple[Tensor | None, ...], angular: Angular, grad: Tensor, needs: tuple[bool, ...]
) -> list[Tensor | None]:
    """The same gradients with a graph of their own, for a second derivative."""
    product, over, h, bias = inputs
    assert product is not None and over is not None and h is not None  # noqa: PT018
    result = h * angular(product * over)
    result = result if bias is None else result + bias
    wanted = [t for t, need in zip(inputs, needs, strict=True) if need and t is not None]
    found = iter(torch.autograd.grad(result, wanted, grad, create_graph=True))
    return [next(found) if need else None for need in needs]
