r"""The last operations of an operator, from inner products P to h·g(P/‖x‖) + b, in one pass forward and one backward.

Plain autograd makes about ten passes over tensors of the output's size and saves three of them. The functions here apply
all operations to one tile of samples after the other, and a tile stays in the processor's cache. The forward pass computes
g together with its slope (:meth:`~hypersphere.angular.Angular.with_slope`). It saves the inner products and h·∂g/∂cos θ,
and also g if h has a gradient. A compiler creates its own loops, so it gets the same derivative as plain operations that
save only the inner products.
"""

import functools
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..angular import Angular
from ..geometry import accumulation_dtype
from ..geometry.numerics import is_traced, needs_graph
from .magnitudes.radius import WithRadius
from .tiling import TileSum, allocate_gradient, differentiate, iterate_tiles, sum_into


def apply_angular_epilogue(
    product: Float[Tensor, "..."],
    inverse: Float[Tensor, "..."],
    h: Float[Tensor, "..."],
    bias: Float[Tensor, "..."] | None,
    angular: Angular,
) -> Float[Tensor, "..."] | None:
    """Return h·g(product·inverse) + bias; None while tracing, or if g has no slope in closed form.

    ``inverse`` is 1/‖x‖. ``inverse`` and ``h`` have the axes of ``product``; all except the first may have size 1.
    ``bias`` broadcasts.

    >>> from hypersphere.angular import SquareCosine
    >>> apply_angular_epilogue(torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5]]), torch.tensor([[3.0]]), None, SquareCosine())
    tensor([[ 0.7500, -3.0000]])
    """
    compiled = torch.compiler.is_compiling()
    if not (compiled or can_tile(product, inverse, h)) or angular.with_slope(product.new_zeros(1)) is None:
        return None
    if not compiled and not needs_graph(product, inverse, h, bias):
        output = torch.empty_like(product)
        for part in iterate_tiles(product):
            _write_affine(_evaluate_with_slope(angular, product[part], inverse[part])[0], h[part], bias, output[part])
        return output
    function = _CompiledAngularEpilogue if compiled else _AngularEpilogue
    result: Tensor = function.apply(product, inverse, h, bias, angular)
    return result


def apply_scale_epilogue(
    product: Float[Tensor, "..."],
    factor: Float[Tensor, "..."],
    bias: Float[Tensor, "..."] | None,
    owned: bool = False,
) -> Float[Tensor, "..."] | None:
    """Return product·factor + bias, where factor is h/‖x‖ if g is the cosine; None if it cannot be computed in tiles.

    ``factor`` has the axes of ``product``; all except the first may have size 1. ``bias`` broadcasts. ``owned`` says that
    nothing else refers to ``product``, so that it may be overwritten.

    >>> apply_scale_epilogue(torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5]]), torch.tensor([1.0, 1.0]))
    tensor([[1.5000, 0.0000]])
    """
    if not can_tile(product, factor):
        return None
    if not needs_graph(product, factor, bias):
        output = product if owned else torch.empty_like(product)
        for part in iterate_tiles(product):
            _write_affine(product[part], factor[part], bias, output[part])
        return output
    result: Tensor = _ScaleEpilogue.apply(product, factor, bias, owned)
    return result


def apply_radius_epilogue(
    product: Float[Tensor, "..."],
    x_norm: Float[Tensor, "..."],
    radius: Float[Tensor, "..."],
    bias: Float[Tensor, "..."] | None,
    magnitude: WithRadius,
) -> Float[Tensor, "..."] | None:
    """Return product·f(‖x‖, ρ) + bias with the magnitude's ``gain_within`` as f; None if it cannot be computed in tiles.

    ``x_norm`` has the axes of ``product``; all except the first may have size 1. ``radius`` and ``bias`` broadcast.

    >>> from hypersphere.operators.magnitudes import Ball
    >>> norms, radii = torch.tensor([[2.0]]), torch.tensor([1.0, 4.0])
    >>> apply_radius_epilogue(torch.tensor([[1.0, -2.0]]), norms, radii, None, Ball())
    tensor([[ 0.5000, -0.5000]])
    """
    if not can_tile(product, x_norm) or radius.dtype != x_norm.dtype:
        return None
    if not needs_graph(product, x_norm, radius, bias):
        output = torch.empty_like(product)
        gains = torch.empty_like(product[:1], dtype=x_norm.dtype)
        for part in iterate_tiles(product):
            size = part.stop - part.start
            gains = gains if len(gains) == size else torch.empty_like(product[part], dtype=x_norm.dtype)
            magnitude.gain_into(x_norm[part], radius, gains)
            _write_affine(product[part], gains, bias, output[part])
        return output
    result: Tensor = _RadiusEpilogue.apply(product, x_norm, radius, bias, magnitude)
    return result


def can_tile(product: Tensor, *others: Tensor) -> bool:
    """Return whether to compute in tiles of the first axis: not while tracing, and only with factors in float32 or better."""
    if is_traced() or not product.numel():
        return False
    dtype = accumulation_dtype(product)
    return all((t.dtype, t.ndim, t.shape[0]) == (dtype, product.ndim, product.shape[0]) for t in others)


class _AngularEpilogue(torch.autograd.Function):
    """Y = h·g(C) + b with the cosines C = P·q of the inner products P and q = 1/‖x‖.

    With the gradient G of Y and S = G·h·g′(C), the gradients are S·q for P, ΣS·P for q, ΣG·g(C) for h and ΣG for b. Each
    sum is over the axes in which the tensor has size 1. The forward pass saves h·g′(C), in whose memory the backward pass
    then writes the gradient of P.
    """

    @staticmethod
    def forward(ctx: Any, product: Tensor, inverse: Tensor, h: Tensor, bias: Tensor | None, angular: Angular) -> Tensor:
        result = torch.empty_like(product)
        slopes = torch.empty_like(product, dtype=h.dtype) if any(ctx.needs_input_grad) else None
        values = torch.empty_like(product, dtype=h.dtype) if ctx.needs_input_grad[2] else None
        for part in iterate_tiles(product):
            value, slope = _evaluate_with_slope(angular, product[part], inverse[part])
            if slopes is not None:
                torch.mul(slope, h[part], out=slopes[part])
            if values is not None:
                values[part] = value
            _write_affine(value, h[part], bias, result[part])
        ctx.save_for_backward(product, inverse, h, bias, slopes, values)
        ctx.angular = angular
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, inverse, h, bias, slopes, values = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():

            def compute(product: Tensor, inverse: Tensor, h: Tensor, bias: Tensor | None) -> Tensor:
                return apply_affine(ctx.angular(product * inverse), h, bias, product.dtype)

            return (*differentiate(compute, (product, inverse, h, bias), grad, needs[:4]), None)
        d_product, d_inverse = allocate_gradient(slopes, dtype=product.dtype), torch.empty_like(inverse)
        d_h = torch.empty_like(h) if needs[2] else None
        d_bias = TileSum(bias if needs[3] else None)
        for part in iterate_tiles(product):
            d_output = grad[part].to(h.dtype)
            d_bias.add(d_output)
            if d_h is not None:
                sum_into(d_h[part], values[part] * d_output)
            d_cos = slopes[part] * d_output
            _write_affine(d_cos, inverse[part], None, d_product[part])
            sum_into(d_inverse[part], d_cos.mul_(product[part]))
        return d_product, d_inverse, d_h, d_bias.sum, None


class _CompiledAngularEpilogue(torch.autograd.Function):
    """The derivative of :class:`_AngularEpilogue` in plain operations, which computes g and its slope again."""

    @staticmethod
    def forward(ctx: Any, product: Tensor, inverse: Tensor, h: Tensor, bias: Tensor | None, angular: Angular) -> Tensor:
        ctx.save_for_backward(product, inverse, h, bias)
        ctx.angular = angular
        return apply_affine(_evaluate_with_slope(angular, product, inverse)[0], h, bias, product.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, inverse, h, bias = ctx.saved_tensors
        d_output = grad.to(h.dtype)
        d_product = _make_channels_last(ctx.angular.slope(product * inverse) * (d_output * (h * inverse)))
        # The gradient of q is ΣS·P = Σ(S·q)·P/q, so the slope is computed only once. q is 0 only for a zero patch.
        d_inverse = (d_product * product).sum_to_size(inverse.shape) / torch.where(inverse > 0, inverse, 1)
        d_h = None
        if ctx.needs_input_grad[2]:
            d_h = (d_output * _evaluate_with_slope(ctx.angular, product, inverse)[0]).sum_to_size(h.shape)
        d_bias = None if bias is None else d_output.sum_to_size(bias.shape)
        return d_product.to(product.dtype), d_inverse, d_h, d_bias, None


def _make_channels_last(gradient: Tensor) -> Tensor:
    """Return the gradient with channels last on a CPU, the layout to which inductor's convolutions would copy it."""
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(gradient.ndim)
    if layout is None or gradient.device.type != "cpu":
        return gradient
    return gradient.contiguous(memory_format=layout)


class _ScaleEpilogue(torch.autograd.Function):
    """Y = P·f + b. The gradients of P, f and b are G·f, ΣG·P and ΣG."""

    @staticmethod
    def forward(ctx: Any, product: Tensor, factor: Tensor, bias: Tensor | None, owned: bool) -> Tensor:
        ctx.save_for_backward(product, factor, bias)
        ctx.owned = owned
        result = torch.empty_like(product)
        for part in iterate_tiles(product):
            _write_affine(product[part], factor[part], bias, result[part])
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, factor, bias = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():
            compute = functools.partial(apply_affine, dtype=product.dtype)
            return (*differentiate(compute, (product, factor, bias), grad, needs[:3]), None)
        d_product, d_factor = allocate_gradient(product, ctx.owned), torch.empty_like(factor)
        d_bias = TileSum(bias if needs[2] else None)
        for part in iterate_tiles(product):
            d_output = grad[part].to(factor.dtype)
            d_bias.add(d_output)
            sum_into(d_factor[part], d_output * product[part])
            _write_affine(d_output, factor[part], None, d_product[part])
        return d_product, d_factor, d_bias.sum, None


class _RadiusEpilogue(torch.autograd.Function):
    """Y = P·f(r, ρ) + b with r = ‖x‖ and f = h/‖x‖.

    With the gradient G of Y, the gradients of P and b are G·f and ΣG. The magnitude gives ρ·∂f/∂ρ. f is homogeneous of the
    degree k = ``magnitude.degree`` in r and ρ together, so by Euler's theorem r·∂f/∂r = k·f − ρ·∂f/∂ρ. The sums over
    G·P times these two, divided by ρ and r, are the gradients of ρ and r. The backward pass writes the gradient of P into
    the memory of f.
    """

    @staticmethod
    def forward(
        ctx: Any, product: Tensor, x_norm: Tensor, radius: Tensor, bias: Tensor | None, magnitude: WithRadius
    ) -> Tensor:
        result, gains = torch.empty_like(product), torch.empty_like(product, dtype=x_norm.dtype)
        for part in iterate_tiles(product):
            magnitude.gain_into(x_norm[part], radius, gains[part])
            _write_affine(product[part], gains[part], bias, result[part])
        ctx.save_for_backward(product, x_norm, radius, bias, gains)
        ctx.magnitude = magnitude
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        product, x_norm, radius, bias, gains = ctx.saved_tensors
        magnitude, needs = ctx.magnitude, ctx.needs_input_grad
        if torch.is_grad_enabled():

            def compute(product: Tensor, x_norm: Tensor, radius: Tensor, bias: Tensor | None) -> Tensor:
                return apply_affine(product, magnitude.gain_within(x_norm, radius), bias, product.dtype)

            return (*differentiate(compute, (product, x_norm, radius, bias), grad, needs[:4]), None)
        d_product, d_norm = allocate_gradient(gains, dtype=product.dtype), torch.empty_like(x_norm)
        d_radius, d_bias = TileSum(radius), TileSum(bias if needs[3] else None)
        for part in iterate_tiles(product):
            d_output, gain = grad[part].to(gains.dtype), gains[part]
            d_bias.add(d_output)
            d_gain = d_output * product[part]
            radius_part = magnitude.radius_slope(x_norm[part], radius, gain).mul_(d_gain)
            d_radius.add(radius_part)
            if magnitude.degree:
                norm_part = d_gain.mul_(gain).mul_(magnitude.degree).sub_(radius_part)
            else:
                norm_part = radius_part.neg_()
            sum_into(d_norm[part], norm_part)
            _write_affine(d_output, gain, None, d_product[part])
        assert d_radius.sum is not None
        # If ‖x‖ is 0, the sum is 0 and stays 0.
        d_norm.mul_((x_norm >= magnitude.shortest) / x_norm.clamp_min(torch.finfo(x_norm.dtype).tiny))
        return d_product, d_norm, d_radius.sum.div_(radius), d_bias.sum, None


def apply_affine(y: Tensor, factor: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return y·factor + bias as ``dtype``, computed in the precision of the factor."""
    wide = y.to(factor.dtype)
    return (wide * factor if bias is None else torch.addcmul(bias, wide, factor)).to(dtype)


def _write_affine(y: Tensor, factor: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Write y·factor + bias into ``out``, computed in the precision of the factor and without a graph."""
    wide, direct = y.to(factor.dtype), out if out.dtype == factor.dtype else None
    if bias is None:
        result = torch.mul(wide, factor, out=direct)
    else:
        result = torch.addcmul(bias, wide, factor, out=direct)
    if direct is None:
        out.copy_(result)


def _evaluate_with_slope(angular: Angular, product: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """Return g and ∂g/∂cos θ at the cosines product·inverse."""
    value_and_slope = angular.with_slope(product * inverse)
    assert value_and_slope is not None
    return value_and_slope
