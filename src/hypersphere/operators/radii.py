r"""From inner products to the output of an operator with the cosine and a radius of each neuron: P·f(‖x‖, ρ) + b, tile by tile.

With a ρ of each neuron f = h/‖x‖ is as large as the output, and plain autograd goes over such maps a dozen times. Here f is kept
once; backward needs one slope more, as f is homogeneous: ‖x‖·∂f/∂‖x‖ + ρ·∂f/∂ρ = degree·f. That ρ holds the mean norm of
the batch, through which a gradient flows as well, is left to autograd: there is one ρ a neuron.
"""

import functools
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .magnitudes.radius import WithRadius
from .tails import affine, in_tiles, plain_affine
from .tiles import Collected, differentiated, room_for_gradient, sum_into, tiles


def scaled_by_radii(
    product: Float[Tensor, "..."],
    x_norm: Float[Tensor, "..."],
    radius: Float[Tensor, "..."],
    bias: Float[Tensor, "..."] | None,
    magnitude: WithRadius,
) -> Float[Tensor, "..."] | None:
    """product·f(‖x‖, ρ) + bias, f the magnitude's ``gain_within``; None where someone looks into the operations.

    ``x_norm`` has the axes of ``product``, each of its size or of 1 beyond the first; ``radius`` and ``bias`` broadcast.

    >>> from hypersphere.operators.magnitudes import Ball
    >>> norms, radii = torch.tensor([[2.0]]), torch.tensor([1.0, 4.0])
    >>> scaled_by_radii(torch.tensor([[1.0, -2.0]]), norms, radii, None, Ball())
    tensor([[ 0.5000, -0.5000]])
    """
    if not in_tiles(product, x_norm) or radius.dtype != x_norm.dtype:
        return None
    result: Tensor = _Radii.apply(product, x_norm, radius, bias, magnitude)
    return result


class _Radii(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, product: Tensor, x_norm: Tensor, radius: Tensor, bias: Tensor | None, magnitude: WithRadius
    ) -> Tensor:
        result, gains = torch.empty_like(product), torch.empty_like(product, dtype=x_norm.dtype)
        for part in tiles(product):
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
            return (*differentiated(plain, (product, x_norm, radius, bias), grad, needs[:4]), None)
        d_product, d_norm = room_for_gradient(gains, dtype=product.dtype), torch.empty_like(x_norm)
        d_radius, d_bias = Collected(radius), Collected(bias if needs[3] else None)
        for part in tiles(product):
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


def _plainly(magnitude: WithRadius, product: Tensor, x_norm: Tensor, radius: Tensor, bias: Tensor | None) -> Tensor:
    return plain_affine(product, magnitude.gain_within(x_norm, radius), bias).to(product.dtype)
