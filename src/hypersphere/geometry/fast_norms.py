"""Fast twins of :mod:`hypersphere.geometry.norms` for lengths that float32 can square: rows of weights, patch norms."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

# Vectors shorter than this are noise: what has no limit at 0 fades to 0 below it, and gradients stay below 1/MIN_NORM.
MIN_NORM = 1e-6


def normalize_rows(
    weight: Float[Tensor, "neurons *rest"],
) -> tuple[Float[Tensor, "neurons *rest"], Float[Tensor, "neurons"]]:
    r"""Return ŵ in the weight's dtype and ‖w‖ in float32 or better for each neuron; a zero neuron has ŵ = 0.

    :func:`hypersphere.geometry.normalize` is right for lengths this one is not (beyond 10^±18 in float32), and makes
    five times as many passes over the weight, which shows in a convolution of many channels on a small map.

    Args:
        weight: neurons by rows; every further axis belongs to the neuron.

    Returns:
        The unit rows and the rows' lengths.

    >>> normalize_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]]), tensor([5., 0.]))
    """
    return _Unit.apply(weight)


def bounded_inverse(norm: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    r"""Return 1/‖x‖, decreasing to 0 below ``MIN_NORM``, so that the direction of a short vector has no steep slope.

    >>> bounded_inverse(torch.tensor([2.0, 1e-6, 0.0]))
    tensor([5.0000e-01, 1.0000e+06, 0.0000e+00])
    """
    return norm / norm.clamp_min(MIN_NORM).square()


def per_neuron(values: Float[Tensor, "*neurons"], ndim: int) -> Float[Tensor, "..."]:
    """Reshape one value per neuron to broadcast with neurons ``ndim`` axes from the end.

    >>> per_neuron(torch.ones(5), 3).shape
    torch.Size([5, 1, 1])
    """
    return values.reshape(-1, *[1] * (ndim - 1))


def directions(x: Float[Tensor, "*batch n d"]) -> tuple[Float[Tensor, "*batch n d"], Float[Tensor, "*batch n 1"]]:
    """Return x̂, 0 for a zero row, and ‖x‖, without a graph, in float32 or better.

    Where a square may overflow or vanish, entries are scaled by the largest first.

    >>> directions(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))[0]
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    x = x.detach().to(torch.promote_types(x.dtype, torch.float32)).contiguous()
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    least, most = torch.aminmax(length)
    if least > 1e-12 and most < 1e15:
        return x / length, length
    scale = x.abs().amax(-1, keepdim=True)
    x = x / scale.clamp_min(torch.finfo(x.dtype).tiny)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x.div_(length.clamp_min(1 / 2)), length * scale


def directions_backward(
    grad: Float[Tensor, "*batch n d"], x: Float[Tensor, "*batch n d"], length: Float[Tensor, "*batch n 1"]
) -> Float[Tensor, "*batch n d"]:
    """Return (I − x̂x̂ᵀ)g/‖x‖ from the gradient g by the directions x̂, in the memory of ``grad``; 0 for a zero row.

    The division is by no less than 10⁻²⁰, where float32 would overflow.

    >>> directions_backward(torch.ones(1, 2), torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0]]))
    tensor([[0.0000, 0.5000]])
    """
    grad.addcmul_(x, torch.linalg.vecdot(grad, x).unsqueeze(-1), value=-1)
    return grad.mul_(torch.where(length > 0, 1 / length.clamp_min(1e-20), 0))


def gram_cosines(x: Float[Tensor, "batch n d"]) -> tuple[Float[Tensor, "batch n n"], Float[Tensor, "batch n"]]:
    """Return the cosines of all pairs of rows and 1/‖x‖, by one product. They are inaccurate if 1/‖x‖ is outside 10^{±8}.

    >>> gram_cosines(torch.tensor([[[3.0, 4.0], [4.0, -3.0]]]))[1]
    tensor([[0.2000, 0.2000]])
    """
    cos = x @ x.mT
    inverse = cos.diagonal(dim1=1, dim2=2).rsqrt()
    return cos.mul_(inverse.unsqueeze(2)).mul_(inverse.unsqueeze(1)), inverse


class _Unit(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(weight.dtype, torch.float32)
        # Reduced over the axes as they are: flattening would copy a channels_last weight.
        length = torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.ndim)), dtype=dtype)
        return (weight * _reciprocal(length, weight.ndim)).to(weight.dtype), length

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_length: Tensor) -> Tensor:
        what, length = ctx.saved_tensors
        axes = tuple(range(1, what.ndim))
        along = (grad * what).sum(axes, keepdim=True, dtype=length.dtype)
        reciprocal = _reciprocal(length, what.ndim)
        # (g − (g·ŵ)ŵ)/‖w‖ + g_‖w‖·ŵ, with the two multiples of ŵ taken together.
        radial = per_neuron(grad_length, what.ndim) - along * reciprocal
        return torch.addcmul(grad * reciprocal, what.to(length.dtype), radial).to(what.dtype)


def _reciprocal(length: Tensor, ndim: int) -> Tensor:
    nonzero = length > 0
    return per_neuron(torch.where(nonzero, 1 / torch.where(nonzero, length, 1), 0), ndim)
