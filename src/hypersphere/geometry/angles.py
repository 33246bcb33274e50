"""Angles between vectors, and angles from cosines. No other module inverts a cosine."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .norms import check_vectors, compute_length, normalize
from .numerics import accumulation_dtype, needs_graph, upcast


def angle(x: Float[Tensor, "*x d"], w: Float[Tensor, "*w d"], *, pairwise: bool = False) -> Float[Tensor, "..."]:
    r"""Compute the angle θ ∈ [0, π] between vectors, in radians.

    It is accurate near 0 and π, where the arccos of a float32 cosine has lost half of its digits. It is π/2 if a vector is 0.
    The gradient is finite everywhere, and 0 if the vectors are parallel, antiparallel or 0. By default leading axes broadcast,
    ``(…, d), (…, d) → (…)``; ``pairwise`` gives ``(…, n, d), (…, c, d) → (…, n, c)``.

    >>> angle(torch.tensor([1.0, 0.0]), torch.tensor([[1.0, 1e-4], [0.0, 2.0], [-1.0, 0.0]]))
    tensor([1.0000e-04, 1.5708e+00, 3.1416e+00])
    """
    check_vectors(x, w, pairwise)
    dtype = torch.promote_types(x.dtype, w.dtype)
    work = accumulation_dtype(x, w)
    with torch.autocast(x.device.type, enabled=False):
        theta = (_compute_pairwise if pairwise else _compute_aligned)(x.to(work), w.to(work))
        return theta.to(dtype)


def geodesic_distance(
    x: Float[Tensor, "*x d"], y: Float[Tensor, "*y d"], *, pairwise: bool = False
) -> Float[Tensor, "..."]:
    r"""Compute the length of the shortest arc between two points of the unit sphere, which is their :func:`angle`.

    >>> geodesic_distance(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
    tensor(1.5708)
    """
    return angle(x, y, pairwise=pairwise)


def arccos(cos: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    r"""Compute θ from cos θ. The slope −1/sin θ is bounded by 1/√ε at ±1 (ε of the dtype).

    >>> arccos(torch.tensor([1.0, 0.0, -1.0]))
    tensor([0.0000, 1.5708, 3.1416])
    """
    return _apply_to_cosine(_Arccos, cos)


def arcsin(cos: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    r"""Compute π/2 − θ from cos θ, accurate near 0. The slope is bounded as in :func:`arccos`.

    >>> arcsin(torch.tensor([1.0, 0.0, -1.0]))
    tensor([ 1.5708,  0.0000, -1.5708])
    """
    return _apply_to_cosine(_Arcsin, cos)


def sine(cos: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    r"""Compute sin θ = √((1 − cos θ)(1 + cos θ)) for θ ∈ [0, π]. The slope −cot θ is bounded as in :func:`arccos`.

    >>> sine(torch.tensor([1.0, 0.6, 0.0, -1.0]))
    tensor([0.0000, 0.8000, 1.0000, 0.0000])
    """
    return _apply_to_cosine(_Sine, cos)


def inverse_sine(cos: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    r"""Compute 1/sin θ from cos θ, at most 1/√ε, without a graph, for hand-written derivatives of angles.

    >>> inverse_sine(torch.tensor([0.0, 0.6]))
    tensor([1.0000, 1.2500])
    """
    one = cos.new_ones(())  # a tensor less a tensor takes half of the time of a number less a tensor
    return torch.sub(one, cos).mul_(torch.add(one, cos)).clamp_min_(torch.finfo(cos.dtype).eps).rsqrt_()


def _compute_aligned(x: Tensor, w: Tensor) -> Tensor:
    y, v = x / _find_power_of_two(x), w / _find_power_of_two(w)
    (ny, y_nonzero), (nv, v_nonzero) = compute_length(y, -1), compute_length(v, -1)
    # θ = 2·atan2(‖y − v‖, ‖y + v‖) for vectors of equal length. An error of the factor changes only the length of y, and with
    # it the angle only to second order.
    y = y * (nv / torch.where(y_nonzero, ny, 1))
    (far, _), (near, _) = compute_length(y - v, -1), compute_length(y + v, -1)
    defined = y_nonzero & v_nonzero
    return torch.where(defined, 2 * torch.atan2(far, torch.where(defined, near, 1)), math.pi / 2).squeeze(-1)


def _compute_pairwise(x: Tensor, w: Tensor) -> Tensor:
    xhat, what = normalize(x), normalize(w)
    # Subtract entry by entry, because |x|² + |w|² − 2x·w would lose the digits of small angles.
    far, near = (torch.cdist(xhat, v, compute_mode="donot_use_mm_for_euclid_dist") for v in (what, -what))
    return 2 * torch.atan2(far, near)


def _find_power_of_two(x: Tensor) -> Tensor:
    """Return the power of two at the largest entry. Division by it is exact; autograd treats it as a constant."""
    _, exponent = torch.frexp(x.detach().abs().amax(-1, keepdim=True))
    smallest = round(math.log2(torch.finfo(x.dtype).tiny))
    exponent = (exponent - 1).clamp_min(smallest)
    return torch.ldexp(torch.ones_like(exponent, dtype=x.dtype), exponent)


def compute_bounded_sine(cos: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return sin θ from cos θ, at least √ε, as a divisor.

    >>> compute_bounded_sine(torch.tensor([0.6]))
    tensor([0.8000])
    """
    return ((1 - cos) * (1 + cos)).clamp_min(torch.finfo(cos.dtype).eps).sqrt()


class _FromCosine(torch.autograd.Function):
    """A function of cos θ whose derivative is bounded at ±1. Its backward pass consists of differentiable operations."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])


def _apply_to_cosine(function: type[_FromCosine], cos: Tensor) -> Tensor:
    """Apply a function of cosines in float32 or better. If no gradient is needed, call only its forward pass."""
    wide = upcast(cos)
    result: Tensor = function.apply(wide) if needs_graph(wide) else function.forward(wide)
    return result if wide is cos else result.to(cos.dtype)


class _Arccos(_FromCosine):
    @staticmethod
    def forward(cos: Tensor) -> Tensor:
        return cos.clamp(-1, 1).acos_()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (cos,) = ctx.saved_tensors
        return -grad / compute_bounded_sine(cos)


class _Arcsin(_FromCosine):
    @staticmethod
    def forward(cos: Tensor) -> Tensor:
        return cos.clamp(-1, 1).asin_()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (cos,) = ctx.saved_tensors
        return grad / compute_bounded_sine(cos)


class _Sine(_FromCosine):
    @staticmethod
    def forward(cos: Tensor) -> Tensor:
        return ((1 - cos) * (1 + cos)).clamp_min(0).sqrt()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (cos,) = ctx.saved_tensors
        return -grad * cos / compute_bounded_sine(cos)
