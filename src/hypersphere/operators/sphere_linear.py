r"""Fully connected layers that see the angle alone, y = α·g(θ) + b, as one autograd function.

**What is computed.** With P = x·wᵀ and the inverse lengths q = 1/‖x‖ and r = 1/‖w‖, the cosines are cos θ = P·q·r, and
D = ∂L/∂P = ∂L/∂y · α·g′(cos θ)·q·r. A direction does not change when its vector grows, so each gradient is D times the
other factor without its part along the vector itself:

.. math:: ∂L/∂x = A − x·(A·x)/‖x‖², \; A = Dw, \qquad ∂L/∂w = B − w·(B·w)/‖w‖², \; B = Dᵀx

**Why.** A layer of a few hundred neurons is limited by the number of operations that autograd records, not by arithmetic;
a large one by passes over the weight, of which this needs one forward and two backward, because ŵ is never built.
"""

from collections.abc import Callable
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
    """Return α·g(θ) + b with gradients; None if g has no slope in closed form or a length is unusual.

    The caller makes sure that both tensors have one dtype, float32 or float64, are on a CPU, are not empty and that nothing
    is traced.

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
            # Shorter vectors have no direction to speak of, squares of longer ones may overflow: both need bounds.
            if not (least.item() >= MIN_NORM**2 and most.item() <= MIN_NORM**-4):
                return None
        over_x, over_w = (square.rsqrt_() for square in squares)
    result: Tensor = _SphereLinear.apply(x, weight, bias, over_x, over_w, angular, alpha)
    return result


class _SphereLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        over_x: Tensor,
        over_w: Tensor,
        angular: Angular,
        alpha: float,
    ) -> Tensor:
        ctx.angular, ctx.alpha = angular, alpha
        multiply = matmul if x.ndim == 2 else torch.matmul
        products = multiply(x, weight.T).mul_(over_x.unsqueeze(-1))
        slope = None
        if isinstance(angular, Cosine):
            factor = over_w if alpha == 1 else over_w * alpha
            result = products.mul_(factor) if bias is None else torch.addcmul(bias, products, factor)
        else:
            pair = angular.with_slope(products.mul_(over_w))
            assert pair is not None  # only a form that learns something, or has no method of its own, returns None
            result, slope = (part if alpha == 1 else part.mul_(alpha) for part in pair)
            if bias is not None:
                result = result.add_(bias)
        ctx.save_for_backward(x, weight, bias, over_x, over_w, slope)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, over_x, over_w, slope = ctx.saved_tensors
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():
            plain = _compute_plainly(ctx.angular, ctx.alpha)
            return (*differentiate(plain, (x, weight, bias), grad, needs[:3]), *[None] * 4)
        width = grad.shape[-1]
        d_bias = grad.reshape(-1, width).sum(0) if needs[2] else None
        # A cosine has the slope 1; α is part of the other slopes already.
        factor = over_w if slope is not None or ctx.alpha == 1 else over_w * ctx.alpha
        d = (grad * factor if slope is None else (grad * slope).mul_(factor)).mul_(over_x.unsqueeze(-1))
        d, rows = d.reshape(-1, width), x.reshape(-1, x.shape[-1])
        d_x = _project(matmul(d, weight), rows, over_x.reshape(-1)).view(x.shape) if needs[0] else None
        d_weight = _project(matmul(d.T, rows), weight, over_w) if needs[1] else None
        return d_x, d_weight, d_bias, None, None, None, None


def _project(gradient: Float[Tensor, "n d"], rows: Float[Tensor, "n d"], over: Float[Tensor, "n"]) -> Tensor:
    """Remove from each gradient, in place, its part along its row of length 1/``over``."""
    along = torch.linalg.vecdot(gradient, rows).mul_(over).mul_(over)
    return gradient.addcmul_(rows, along.unsqueeze(-1), value=-1)


def _compute_plainly(angular: Angular, alpha: float) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """Return the same function in operations that autograd differentiates any number of times."""

    def compute(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        y = angular(normalize(x) @ normalize(weight).T) * alpha
        return y if bias is None else y + bias

    return compute
