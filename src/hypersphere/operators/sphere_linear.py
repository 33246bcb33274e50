r"""Fully connected layers of the angle alone, y = α·g(θ) + b, as one autograd function.

**What is computed.** With P = x·wᵀ, q = 1/‖x‖ and r = 1/‖w‖, the cosines are cos θ = P·q·r. Let
D = ∂L/∂P = ∂L/∂y · α·g′(cos θ)·q·r. A direction does not change if its vector becomes longer, so each gradient is the
product of D and the other factor, without its component along the vector itself:

.. math:: ∂L/∂x = A − x·(A·x)/‖x‖², \; A = Dw, \qquad ∂L/∂w = B − w·(B·w)/‖w‖², \; B = Dᵀx

**Why.** The time of a layer of a few hundred neurons is the number of operations that autograd records, not arithmetic.
The time of a large layer is the number of passes over the weight. This function needs one pass forward and two backward,
because it never builds ŵ.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..angular import Angular, Cosine
from ..geometry.fast_norms import MIN_NORM
from ..geometry.norms import normalize
from ..geometry.products import matmul
from .tiling import differentiate


def apply_sphere_linear(
    x: Float[Tensor, "*batch inputs"],
    weight: Float[Tensor, "neurons inputs"],
    bias: Float[Tensor, "neurons"] | None,
    angular: Angular,
    alpha: float = 1.0,
) -> Float[Tensor, "*batch neurons"] | None:
    """Return α·g(θ) + b with gradients; None if g has no slope in closed form or a length is out of range.

    The caller guarantees that both tensors are not empty, have the same dtype, float32 or float64, and are on a CPU, and
    that nothing is traced.

    Args:
        x: The inputs.
        weight: The neurons as rows.
        bias: b, or None for none.
        angular: g.
        alpha: α.

    >>> from hypersphere.angular import SquareCosine
    >>> x, w = torch.tensor([[3.0, 4.0]]), torch.eye(2).requires_grad_()
    >>> apply_sphere_linear(x, w, None, SquareCosine()).detach()
    tensor([[0.3600, 0.6400]])
    """
    if not isinstance(angular, Cosine) and (angular._parameters or type(angular).with_slope is Angular.with_slope):
        return None
    with torch.no_grad():
        squares = [torch.linalg.vecdot(rows, rows) for rows in (x, weight)]
        for square in squares:
            least, most = torch.aminmax(square)
            # Shorter vectors need bounded roots, because their directions are noise. Squares of longer ones may overflow.
            if not (least.item() >= MIN_NORM**2 and most.item() <= MIN_NORM**-4):
                return None
        x_inverse, w_inverse = (square.rsqrt_() for square in squares)
    result: Tensor = _SphereLinear.apply(x, weight, bias, x_inverse, w_inverse, angular, alpha)
    return result


class _SphereLinear(torch.autograd.Function):
    """The formulas of the module's docstring; ``x_inverse`` is q and ``w_inverse`` is r."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        x_inverse: Tensor,
        w_inverse: Tensor,
        angular: Angular,
        alpha: float,
    ) -> Tensor:
        ctx.angular, ctx.alpha = angular, alpha
        multiply = matmul if x.ndim == 2 else torch.matmul
        products = multiply(x, weight.T).mul_(x_inverse.unsqueeze(-1))
        slope = None
        if isinstance(angular, Cosine):
            factor = w_inverse if alpha == 1 else w_inverse * alpha
            result = products.mul_(factor) if bias is None else torch.addcmul(bias, products, factor)
        else:
            value_and_slope = angular.with_slope(products.mul_(w_inverse))
            assert value_and_slope is not None  # apply_sphere_linear excludes functions without a slope
            result, slope = (part if alpha == 1 else part.mul_(alpha) for part in value_and_slope)
            if bias is not None:
                result = result.add_(bias)
        ctx.save_for_backward(x, weight, bias, x_inverse, w_inverse, slope)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, x_inverse, w_inverse, slope = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():

            def compute(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
                y = ctx.angular(normalize(x) @ normalize(weight).T) * ctx.alpha
                return y if bias is None else y + bias

            return (*differentiate(compute, (x, weight, bias), grad, needs[:3]), *[None] * 4)
        width = grad.shape[-1]
        d_bias = grad.reshape(-1, width).sum(0) if needs[2] else None
        # The slope of a cosine is 1. The slopes of other functions already contain α.
        factor = w_inverse if slope is not None or ctx.alpha == 1 else w_inverse * ctx.alpha
        d = (grad * factor if slope is None else (grad * slope).mul_(factor)).mul_(x_inverse.unsqueeze(-1))
        d, rows = d.reshape(-1, width), x.reshape(-1, x.shape[-1])
        d_x = _remove_radial_part(matmul(d, weight), rows, x_inverse.reshape(-1)).view(x.shape) if needs[0] else None
        d_weight = _remove_radial_part(matmul(d.T, rows), weight, w_inverse) if needs[1] else None
        return d_x, d_weight, d_bias, None, None, None, None


def _remove_radial_part(
    gradient: Float[Tensor, "n d"], rows: Float[Tensor, "n d"], inverse: Float[Tensor, "n"]
) -> Tensor:
    """Remove, in place, the component of each gradient along its row, whose length is 1/``inverse``."""
    radial = torch.linalg.vecdot(gradient, rows).mul_(inverse).mul_(inverse)
    return gradient.addcmul_(rows, radial.unsqueeze(-1), value=-1)
