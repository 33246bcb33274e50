r"""The norms of the patches under a filter: Σ_c x² per group, then sums over windows with the convolution's geometry."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..geometry import accumulation_dtype
from ..geometry.fast_norms import MIN_NORM
from ..geometry.numerics import is_traced, needs_graph
from .tiling import TILE, iterate_tiles

Convolution: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d
Windows: TypeAlias = tuple[tuple[int, int, int], ...]  # size, stride and dilation of each axis
MAX_POOLED = 2**11  # number of sums up to which one call of pooling is faster than additions along each axis
_AVERAGE: tuple[Callable[..., Tensor], ...] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
_CONVOLVE: tuple[Callable[..., Tensor], ...] = (F.conv1d, F.conv2d, F.conv3d)


def sum_squares(
    x: Float[Tensor, "..."], dim: int, groups: int = 1, owned: bool = False
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    r"""Return Σ x² over each of ``groups`` equal parts of ``dim``, in float32 or better, and ``x`` itself.

    Use the returned ``x`` for the inner product. Then the two gradients of ``x`` are added in one pass, and in place if the
    gradient from the inner product is ``owned``, so that nothing else refers to it.

    >>> sum_squares(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), -1, groups=2)[0]
    tensor([[ 5., 25.]])
    """
    if not needs_graph(x):
        return _Squares.forward(x, dim, groups, owned)
    return _Squares.apply(x, dim, groups, owned and not is_traced())


def sum_patch_squares(sums: Float[Tensor, "..."], layer: Convolution) -> Float[Tensor, "..."]:
    r"""Return ‖patch‖² at every position of the layer's output, from the Σ_c x² of its groups: ``(…, g, *in) → (…, g, *out)``.

    Padding of any mode commutes with squaring, so the sums are padded instead of the inputs.

    >>> sum_patch_squares(torch.ones(1, 1, 4, 4), torch.nn.Conv2d(5, 7, 3, padding=1))[0, 0]
    tensor([[4., 6., 6., 4.],
            [6., 9., 9., 6.],
            [6., 9., 9., 6.],
            [4., 6., 6., 4.]])
    """
    size, axes = layer.kernel_size, len(layer.kernel_size)
    padding = layer._reversed_padding_repeated_twice
    if not any(padding) and all(s == step == 1 for s, step in zip(size, layer.stride, strict=True)):
        return sums
    if (
        sums.numel() <= MAX_POOLED
        and axes == 2
        and sums.device.type == "cpu"
        and layer.padding_mode == "zeros"
        and layer.dilation == (1, 1)
        and not isinstance(layer.padding, str)
        and all(2 * p <= k for p, k in zip(layer.padding, size, strict=True))
        and not needs_graph(sums)
    ):
        return F.avg_pool2d(sums, size, layer.stride, layer.padding, divisor_override=1)
    if any(padding):
        sums = F.pad(sums, padding, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode)
    if sums.device.type == "cpu" and not is_traced():
        windows = tuple(zip(size, layer.stride, layer.dilation, strict=True))
        if not needs_graph(sums):
            return _sum_windows(sums, windows)
        result: Tensor = _SumWindows.apply(sums, windows)
        return result
    if all(d == 1 for d in layer.dilation):
        return _AVERAGE[axes - 1](sums, size, layer.stride) * math.prod(size)
    groups = sums.shape[-1 - axes]
    box = sums.new_ones(groups, 1, *size)
    return _CONVOLVE[axes - 1](sums, box, stride=layer.stride, dilation=layer.dilation, groups=groups).clamp_min(0)


def bounded_sqrt(square: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    r"""Return ‖x‖ from ‖x‖² with a bounded slope: below ``MIN_NORM`` the value is ‖x‖²/``MIN_NORM``.

    >>> bounded_sqrt(torch.tensor([4.0, 0.0]))
    tensor([2., 0.])
    """
    return square * square.clamp_min(MIN_NORM**2).rsqrt()


def bounded_rsqrt(square: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    r"""Return 1/‖x‖ from ‖x‖², and ‖x‖²/``MIN_NORM``³ below ``MIN_NORM``, as ``bounded_inverse(bounded_sqrt(square))`` does.

    >>> bounded_rsqrt(torch.tensor([4.0, 0.0]))
    tensor([0.5000, 0.0000])
    """
    return _InverseRoot.apply(square) if needs_graph(square) else _InverseRoot.forward(square)


class _InverseRoot(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(square: Tensor) -> Tensor:
        return torch.where(square < MIN_NORM**2, square * MIN_NORM**-3, square.rsqrt())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        square, inverse = ctx.saved_tensors
        return grad * torch.where(square < MIN_NORM**2, MIN_NORM**-3, inverse * inverse * inverse * -0.5)


class _Squares(torch.autograd.Function):
    """Σ x² and x. With the gradients G of the sums and D of the returned x, the gradient of x is D + 2·x·G."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, dim: int, groups: int, owned: bool) -> tuple[Tensor, Tensor]:
        dtype = accumulation_dtype(x)
        if groups == x.shape[dim]:  # one channel per group
            return x.to(dtype).square(), x.view_as(x)
        grouped = _split_groups(x, dim, groups)
        if is_traced() or x.ndim == -dim or x.numel() <= TILE:
            sums = grouped.to(dtype).square().sum(dim, keepdim=groups == 1)
            return sums, x.view_as(x)
        sums = x.new_empty((*x.shape[:dim], groups, *x.shape[x.ndim + dim + 1 :]), dtype=dtype)
        for part in iterate_tiles(x):
            torch.sum(grouped[part].to(dtype).square(), dim, keepdim=groups == 1, out=sums[part])
        return sums, x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int, bool], output: tuple[Tensor, Tensor]) -> None:
        x, ctx.dim, ctx.groups, ctx.owned = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad_sums: Tensor, grad_x: Tensor) -> tuple[Tensor, None, None, None]:
        (x,) = ctx.saved_tensors
        dim, dtype = ctx.dim, grad_sums.dtype
        grad_x, grouped = (_split_groups(t, dim, ctx.groups).to(dtype) for t in (grad_x, x))
        grad_sums = grad_sums if ctx.groups == 1 else grad_sums.unsqueeze(dim)
        add = grad_x.addcmul_ if ctx.owned and not torch.is_grad_enabled() else grad_x.addcmul
        total = add(grouped, grad_sums, value=2).to(x.dtype)
        return total if ctx.groups == 1 else total.flatten(dim - 1, dim), None, None, None


class _SumWindows(torch.autograd.Function):
    """Sums over windows by additions along one axis after the other, which takes a tenth of the time of pooling."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor, windows: Windows) -> Tensor:
        ctx.shape, ctx.windows = sums.shape, windows
        summed = _sum_windows(sums, windows)
        return summed.clone() if summed is sums else summed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _SpreadWindows.apply(grad, ctx.shape, ctx.windows), None


def _sum_windows(sums: Tensor, windows: Windows) -> Tensor:
    """Return the sums over windows, or the tensor itself if every window is a single entry."""
    for axis, window in enumerate(windows, -len(windows)):
        if window[:2] == (1, 1):
            continue
        first, *rest = _slice_taps(sums, axis, window)
        sums = first + rest[0] if rest else first.clone()
        for other in rest[1:]:
            sums += other
    return sums


class _SpreadWindows(torch.autograd.Function):
    """The transpose of :class:`_SumWindows`: each number is added to all entries of its window."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, shape: torch.Size, windows: Windows) -> Tensor:
        ctx.windows = windows
        for axis, window in enumerate(windows, -len(windows)):
            size = list(grad.shape)
            size[axis] = shape[axis]
            spread = grad.new_zeros(size)
            for taps in _slice_taps(spread, axis, window):
                taps += grad
            grad = spread
        return grad

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _SumWindows.apply(grad, ctx.windows), None, None


def _slice_taps(x: Tensor, axis: int, window: tuple[int, int, int]) -> list[Tensor]:
    """Return the slices of an axis that each tap of a window ``(size, stride, dilation)`` reads."""
    size, stride, dilation = window
    axis %= x.ndim
    count = (x.shape[axis] - dilation * (size - 1) - 1) // stride + 1
    at = (slice(None),) * axis
    return [x[(*at, slice(i * dilation, i * dilation + (count - 1) * stride + 1, stride))] for i in range(size)]


def _split_groups(x: Tensor, dim: int, groups: int) -> Tensor:
    """Split the axis before ``dim`` + 1 into groups: ``(…, c, *rest) → (…, groups, c/groups, *rest)``.

    One group keeps its shape, because a compiler does not recognize channels-last tensors with an additional axis.
    """
    return x if groups == 1 else x.unflatten(dim, (groups, -1))
