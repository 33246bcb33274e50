r"""From inner products to an operator's output, h·g(P/‖x‖) + b, by one pass over the outputs forward and one backward.

Plain autograd goes over maps of the output's size about ten times, and keeps three of them. Here a few samples at a time,
as many as stay in the processor's cache, go through the whole chain. Forward finds g together with its slope
(:meth:`~hypersphere.angular.Angular.with_slope`); the inner products and h·∂g/∂cos θ are kept, and g only where h learns something.
A compiler makes its own loops: it gets the same derivative in plain operations, and keeps the inner products alone.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..angular import Angular
from ..geometry.numerics import is_traced, needs_graph
from .magnitudes.radius import WithRadius
from .tiling import TileSum, allocate_gradient, differentiate, iterate_tiles, sum_into


def apply_angular_epilogue(
    product: Float[Tensor, "..."],
    over: Float[Tensor, "..."],
    h: Float[Tensor, "..."],
    bias: Float[Tensor, "..."] | None,
    angular: Angular,
) -> Float[Tensor, "..."] | None:
    """Return h·g(product·over) + bias; None while tracing, or if g has no slope in closed form.

    ``over`` and ``h`` have the axes of ``product``, each of its size or of 1 beyond the first; ``bias`` broadcasts.

    >>> from hypersphere.angular import SquareCosine
    >>> apply_angular_epilogue(torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5]]), torch.tensor([[3.0]]), None, SquareCosine())
    tensor([[ 0.7500, -3.0000]])
    """
    compiled = torch.compiler.is_compiling()
    if not (compiled or can_tile(product, over, h)) or angular.with_slope(product.new_zeros(1)) is None:
        return None
    if not compiled and not needs_graph(product, over, h, bias):
        found = torch.empty_like(product)
        for part in iterate_tiles(product):
            affine(_with_slope(angular, product[part], over[part])[0], h[part], bias, found[part])
        return found
    result: Tensor = (_CompiledAngularEpilogue if compiled else _AngularEpilogue).apply(product, over, h, bias, angular)
    return result


def apply_scale_epilogue(
    product: Float[Tensor, "..."],
    factor: Float[Tensor, "..."],
    bias: Float[Tensor, "..."] | None,
    ours: bool = False,
) -> Float[Tensor, "..."] | None:
    """Return product·factor + bias, where factor is h/‖x‖ for the cosine; None as in :func:`apply_angular_epilogue`.

    ``factor`` has the axes of ``product``, each of its size or of 1 beyond the first; ``bias`` broadcasts. ``ours`` says that
    nobody else has ``product``, so that its gradient may be written over it.

    >>> apply_scale_epilogue(torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5]]), torch.tensor([1.0, 1.0]))
    tensor([[1.5000, 0.0000]])
    """
    if not can_tile(product, factor):
        return None
    if not needs_graph(product, factor, bias):
        scaled = product if ours else torch.empty_like(product)
        for part in iterate_tiles(product):
            affine(product[part], factor[part], bias, scaled[part])
        return scaled
    result: Tensor = _ScaleEpilogue.apply(product, factor, bias, ours)
    return result


def apply_radius_epilogue(
    product: Float[Tensor, "..."],
    x_norm: Float[Tensor, "..."],
    radius: Float[Tensor, "..."],
    bias: Float[Tensor, "..."] | None,
    magnitude: WithRadius,
) -> Float[Tensor, "..."] | None:
    """Return product·f(‖x‖, ρ) + bias with the magnitude's ``gain_within`` as f; None while tracing.

    ``x_norm`` has the axes of ``product``, each of its size or of 1 beyond the first; ``radius`` and ``bias`` broadcast.

    >>> from hypersphere.operators.magnitudes import Ball
    >>> norms, radii = torch.tensor([[2.0]]), torch.tensor([1.0, 4.0])
    >>> apply_radius_epilogue(torch.tensor([[1.0, -2.0]]), norms, radii, None, Ball())
    tensor([[ 0.5000, -0.5000]])
    """
    if not can_tile(product, x_norm) or radius.dtype != x_norm.dtype:
        return None
    if not needs_graph(product, x_norm, radius, bias):
        found = torch.empty_like(product)
        gains = torch.empty_like(product[:1], dtype=x_norm.dtype)
        for part in iterate_tiles(product):
            size = part.stop - part.start
            gains = gains if len(gains) == size else torch.empty_like(product[part], dtype=x_norm.dtype)
            magnitude.gain_into(x_norm[part], radius, gains)
            affine(product[part], gains, bias, found[part])
        return found
    result: Tensor = _RadiusEpilogue.apply(product, x_norm, radius, bias, magnitude)
    return result


def can_tile(product: Tensor, *others: Tensor) -> bool:
    """Return whether to compute in tiles of the first axis: not while tracing, and only in float32 or better."""
    if is_traced() or not product.numel():
        return False
    dtype = torch.promote_types(product.dtype, torch.float32)
    return all((t.dtype, t.ndim, t.shape[0]) == (dtype, product.ndim, product.shape[0]) for t in others)


class _AngularEpilogue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, product: Tensor, over: Tensor, h: Tensor, bias: Tensor | None, angular: Angular) -> Tensor:
        result = torch.empty_like(product)
        slopes = torch.empty_like(product, dtype=h.dtype) if any(ctx.needs_input_grad) else None
        values = torch.empty_like(product, dtype=h.dtype) if ctx.needs_input_grad[2] else None
        for part in iterate_tiles(product):
            pair = _with_slope(angular, product[part], over[part])
            if slopes is not None:
                torch.mul(pair[1], h[part], out=slopes[part])
            if values is not None:
                values[part] = pair[0]
            affine(pair[0], h[part], bias, result[part])
        ctx.save_for_backward(product, over, h, bias, slopes, values)
        ctx.angular = angular
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, over, h, bias, slopes, values = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():
            return (*differentiate(_plain_angular(ctx.angular), (product, over, h, bias), grad, needs[:4]), None)
        d_product, d_over = allocate_gradient(slopes, dtype=product.dtype), torch.empty_like(over)
        d_h = torch.empty_like(h) if needs[2] else None
        d_bias = TileSum(bias if needs[3] else None)
        for part in iterate_tiles(product):
            arrived = grad[part].to(h.dtype)
            d_bias.add(arrived)
            if d_h is not None:
                sum_into(d_h[part], values[part] * arrived)
            by_cos = slopes[part] * arrived
            affine(by_cos, over[part], None, d_product[part])
            sum_into(d_over[part], by_cos.mul_(product[part]))
        return d_product, d_over, d_h, d_bias.sum, None


class _CompiledAngularEpilogue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, product: Tensor, over: Tensor, h: Tensor, bias: Tensor | None, angular: Angular) -> Tensor:
        ctx.save_for_backward(product, over, h, bias)
        ctx.angular = angular
        return plain_affine(_with_slope(angular, product, over)[0], h, bias).to(product.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, over, h, bias = ctx.saved_tensors
        arrived = grad.to(h.dtype)
        by_product = _laid_out(ctx.angular.slope(product * over) * (arrived * (h * over)))
        # ∂/∂over = (P/over)·∂/∂P: the slope is found once. Where over is 0, so is the patch.
        d_over = (by_product * product).sum_to_size(over.shape) / torch.where(over > 0, over, 1)
        d_h = None
        if ctx.needs_input_grad[2]:
            d_h = (arrived * _with_slope(ctx.angular, product, over)[0]).sum_to_size(h.shape)
        d_bias = None if bias is None else arrived.sum_to_size(bias.shape)
        return by_product.to(product.dtype), d_over, d_h, d_bias, None


def _laid_out(gradient: Tensor) -> Tensor:
    """Return the tensor with channels last on a CPU: inductor's convolutions expect that layout and would copy it otherwise."""
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(gradient.ndim)
    if layout is None or gradient.device.type != "cpu":
        return gradient
    return gradient.contiguous(memory_format=layout)


class _ScaleEpilogue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, product: Tensor, factor: Tensor, bias: Tensor | None, ours: bool) -> Tensor:
        ctx.save_for_backward(product, factor, bias)
        ctx.ours = ours
        result = torch.empty_like(product)
        for part in iterate_tiles(product):
            affine(product[part], factor[part], bias, result[part])
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, factor, bias = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():
            return (*differentiate(_plain_scaled, (product, factor, bias), grad, needs[:3]), None)
        d_product, d_factor = allocate_gradient(product, ctx.ours), torch.empty_like(factor)
        d_bias = TileSum(bias if needs[2] else None)
        for part in iterate_tiles(product):
            arrived = grad[part].to(factor.dtype)
            d_bias.add(arrived)
            sum_into(d_factor[part], arrived * product[part])
            affine(arrived, factor[part], None, d_product[part])
        return d_product, d_factor, d_bias.sum, None


class _RadiusEpilogue(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, product: Tensor, x_norm: Tensor, radius: Tensor, bias: Tensor | None, magnitude: WithRadius
    ) -> Tensor:
        result, gains = torch.empty_like(product), torch.empty_like(product, dtype=x_norm.dtype)
        for part in iterate_tiles(product):
            magnitude.gain_into(x_norm[part], radius, gains[part])
            affine(product[part], gains[part], bias, result[part])
        ctx.save_for_backward(product, x_norm, radius, bias, gains)
        ctx.magnitude = magnitude
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, x_norm, radius, bias, gains = ctx.saved_tensors
        magnitude, needs = ctx.magnitude, ctx.needs_input_grad
        if torch.is_grad_enabled():
            plain = functools.partial(_plainly, magnitude)
            return (*differentiate(plain, (product, x_norm, radius, bias), grad, needs[:4]), None)
        d_product, d_norm = allocate_gradient(gains, dtype=product.dtype), torch.empty_like(x_norm)
        d_radius, d_bias = TileSum(radius), TileSum(bias if needs[3] else None)
        for part in iterate_tiles(product):
            arrived, gain = grad[part].to(gains.dtype), gains[part]
            d_bias.add(arrived)
            both = arrived * product[part]
            by_radius = magnitude.radius_slope(x_norm[part], radius, gain).mul_(both)
            d_radius.add(by_radius)
            by_norm = both.mul_(gain).mul_(magnitude.degree).sub_(by_radius) if magnitude.degree else by_radius.neg_()
            sum_into(d_norm[part], by_norm)
            affine(arrived, gain, None, d_product[part])
        assert d_radius.sum is not None
        # Where ‖x‖ is 0 its slope is 0 as well, and stays so.
        d_norm.mul_((x_norm >= magnitude.shortest) / x_norm.clamp_min(torch.finfo(x_norm.dtype).tiny))
        return d_product, d_norm, d_radius.sum.div_(radius), d_bias.sum, None


def affine(y: Tensor, factor: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Write y·factor + bias into ``out``, in the factor's precision."""
    wide, direct = y.to(factor.dtype), out if out.dtype == factor.dtype else None
    if bias is None:
        result = torch.mul(wide, factor, out=direct)
    else:
        result = torch.addcmul(bias, wide, factor, out=direct)
    if direct is None:
        out.copy_(result)


def plain_affine(y: Tensor, factor: Tensor, bias: Tensor | None) -> Tensor:
    """Return y·factor + bias for autograd."""
    wide = y.to(factor.dtype)
    return wide * factor if bias is None else torch.addcmul(bias, wide, factor)


def _with_slope(angular: Angular, product: Tensor, over: Tensor) -> tuple[Tensor, Tensor]:
    pair = angular.with_slope(product * over)
    assert pair is not None
    return pair


def _plain_scaled(product: Tensor, factor: Tensor, bias: Tensor | None) -> Tensor:
    return plain_affine(product, factor, bias).to(product.dtype)


def _plain_angular(angular: Angular) -> Callable[..., Tensor]:
    return lambda product, over, h, bias: plain_affine(angular(product * over), h, bias).to(product.dtype)


def _plainly(magnitude: WithRadius, product: Tensor, x_norm: Tensor, radius: Tensor, bias: Tensor | None) -> Tensor:
    return plain_affine(product, magnitude.gain_within(x_norm, radius), bias).to(product.dtype)
