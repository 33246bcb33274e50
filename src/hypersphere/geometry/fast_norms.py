"""Faster variants of :mod:`hypersphere.geometry.norms` for vectors whose squares are within the range of float32."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from .numerics import needs_graph

MIN_NORM = 1e-6
"""Shorter vectors are noise. Functions without a limit at 0 decrease to 0 below this length, so gradients are at most 1/MIN_NORM."""


def normalize_rows(
    weight: Float[Tensor, "neurons *rest"],
) -> tuple[Float[Tensor, "neurons *rest"], Float[Tensor, "neurons"]]:
    r"""Return ŵ in the weight's dtype and ‖w‖ in float32 or better for each neuron; a zero neuron has ŵ = 0.

    In float32 it is inaccurate for lengths outside of 10^±18. :func:`hypersphere.geometry.normalize` is accurate for all lengths,
    but passes over the weight five times as often, which takes noticeable time in a convolution of many channels on a small map.

    Args:
        weight: One neuron per entry of the first axis; all other axes belong to the neuron.

    Returns:
        The unit rows and their lengths.

    >>> normalize_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    (tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]]), tensor([5., 0.]))
    """
    return _Unit.apply(weight) if needs_graph(weight) else normalize_rows_once(weight)


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

    If a square may overflow or underflow, the entries are divided by the largest one first.

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

    The divisor is at least 10⁻²⁰, because float32 would overflow otherwise.

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


class _UnitRows(NamedTuple):
    """Normalized rows of a parameter, and what identifies the parameter's content.

    The version counter changes with every operation in place, and so with every optimizer step and ``load_state_dict``. Writing
    through ``parameter.data`` does not change it. To detect that, the address is stored, and ``sampled``, a copy of some entries,
    is compared with ``current``, a view of the same entries.
    """

    version: int
    address: int
    shape: torch.Size
    current: Tensor
    sampled: Tensor
    rows: Tensor
    lengths: Tensor


PROBED_ENTRIES = 64
"""Number of entries of a parameter that are compared to detect changes through ``parameter.data``."""
_unit_rows = WeakTensorKeyDictionary()
"""The normalized rows of each parameter. Entries are replaced and never changed, so threads may share them. They are not part of a
module, so they are neither saved nor copied with it, and an entry is deleted with its parameter."""


def normalize_rows_once(
    weight: Float[Tensor, "neurons *rest"],
) -> tuple[Float[Tensor, "neurons *rest"], Float[Tensor, "neurons"]]:
    """Return :func:`normalize_rows` without a graph, from a cache if the weight is a parameter that has not changed.

    A network in evaluation mode then normalizes each weight once. The version counter of the parameter detects every change in
    place. A change through ``parameter.data`` is detected if it moves the memory or changes one of ``PROBED_ENTRIES`` entries, as
    loading or averaging weights does.

    Args:
        weight: Neurons by rows, as for :func:`normalize_rows`.

    Returns:
        The unit rows and their lengths, which must not be changed in place.

    >>> layer = torch.nn.Linear(2, 3)
    >>> normalize_rows_once(layer.weight)[0] is normalize_rows_once(layer.weight)[0]
    True
    """
    if (
        type(weight) is not nn.Parameter
        or weight.is_inference()
        or weight.device.type != "cpu"
        or not _is_dense(weight)
    ):
        return _Unit.forward(weight)
    cached = _unit_rows.get(weight)
    if (
        cached is not None
        and cached.version == weight._version
        and cached.address == weight.data_ptr()
        and cached.shape == weight.shape
        and cached.rows.dtype == weight.dtype
        and torch.equal(cached.sampled, cached.current)
    ):
        return cached.rows, cached.lengths
    version, current = weight._version, _sample_entries(weight)
    sampled = current.clone()
    with torch.inference_mode(False):  # the result may be used outside of inference mode later
        rows, lengths = _Unit.forward(weight.detach())
    _unit_rows[weight] = _UnitRows(version, weight.data_ptr(), weight.shape, current, sampled, rows, lengths)
    return rows, lengths


def _is_dense(weight: Tensor) -> bool:
    return weight.is_contiguous() or (weight.ndim == 4 and weight.is_contiguous(memory_format=torch.channels_last))


def _sample_entries(weight: Tensor) -> Tensor:
    """Return a view of up to ``PROBED_ENTRIES`` entries, at equal distances in memory."""
    step = max(1, weight.numel() // PROBED_ENTRIES)
    return weight.detach().as_strided((min(weight.numel(), PROBED_ENTRIES),), (step,))


class _Unit(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(weight.dtype, torch.float32)
        # Reduce over several axes, because flattening would copy a channels_last weight.
        length = torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.ndim)), dtype=dtype)
        return (weight * _invert_lengths(length, weight.ndim)).to(weight.dtype), length

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_length: Tensor) -> Tensor:
        what, length = ctx.saved_tensors
        axes = tuple(range(1, what.ndim))
        along = (grad * what).sum(axes, keepdim=True, dtype=length.dtype)
        reciprocal = _invert_lengths(length, what.ndim)
        # The gradient is (g − (g·ŵ)ŵ)/‖w‖ + g_‖w‖·ŵ. Add the two multiples of ŵ first.
        radial = per_neuron(grad_length, what.ndim) - along * reciprocal
        return torch.addcmul(grad * reciprocal, what.to(length.dtype), radial).to(what.dtype)


def _invert_lengths(length: Tensor, ndim: int) -> Tensor:
    """Return 1/‖w‖, and 0 for a zero neuron, shaped to multiply the neurons."""
    nonzero = length > 0
    return per_neuron(torch.where(nonzero, 1 / torch.where(nonzero, length, 1), 0), ndim)
