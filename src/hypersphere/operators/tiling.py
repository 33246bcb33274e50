"""Tiles of a tensor that fit into the CPU cache, for functions that apply several operations to each tile."""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

TILE = 2**17
"""Number of entries per tile and CPU thread: 512 KiB in float32, so that a few tiles fit into the cache of a core."""


def iterate_tiles(whole: Float[Tensor, "n *rest"]) -> Iterator[slice]:
    """Yield slices of the first axis, one per tile. On devices other than the CPU, yield one slice for the whole tensor.

    >>> list(iterate_tiles(torch.empty(3, 2**17 * torch.get_num_threads())))
    [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)]
    """
    n = whole.shape[0]
    if whole.device.type == "cpu" and whole.numel():
        size = max(1, TILE * torch.get_num_threads() * n // whole.numel())
    else:
        size = max(1, n)
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def allocate_gradient(saved: Tensor, owned: bool = True, dtype: torch.dtype | None = None) -> Tensor:
    """Return memory for a gradient with the shape of ``saved``. Reuse the memory of ``saved`` if possible.

    Allocating memory costs as much as several passes over it. The memory can be reused if only the caller refers to ``saved``
    (``owned``), the dtype is the same, and the graph is freed after this backward pass. The caller must read each part of
    ``saved`` before it writes the gradient there.

    >>> allocate_gradient(torch.zeros(3), owned=False).shape
    torch.Size([3])
    """
    dtype = saved.dtype if dtype is None else dtype
    if owned and dtype == saved.dtype and not torch._C._autograd._get_current_graph_task_keep_graph():
        return saved
    return torch.empty_like(saved, dtype=dtype)


def differentiate(
    function: Callable[..., Tensor], inputs: Sequence[Tensor | None], grad: Tensor, needs: Sequence[bool]
) -> list[Tensor | None]:
    """Return the gradients of ``function(*inputs)`` with an autograd graph, so that a hand-written backward can be differentiated.

    Args:
        function: The function to differentiate.
        inputs: Its arguments.
        grad: The gradient of the output.
        needs: Whether each input needs a gradient. The gradient of every other input is None.

    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> differentiate(torch.square, [x], torch.ones(1), [True])[0].requires_grad
    True
    """
    differentiated = [t for t, need in zip(inputs, needs, strict=True) if need and t is not None]
    gradients = iter(torch.autograd.grad(function(*inputs), differentiated, grad, create_graph=True))
    return [next(gradients) if need else None for need in needs]


def sum_into(out: Float[Tensor, "..."], tile: Float[Tensor, "..."]) -> None:
    """Sum ``tile`` over the axes in which ``out`` has size 1, and write the result into ``out``.

    >>> out = torch.zeros(2, 1)
    >>> sum_into(out, torch.ones(2, 3))
    >>> out
    tensor([[3.],
            [3.]])
    """
    axes = [axis for axis, size in enumerate(out.shape) if size != tile.shape[axis]]
    if axes:
        torch.sum(tile, axes, keepdim=True, out=out)
    else:
        out.copy_(tile)


class TileSum:
    """A running sum of tiles in the shape of ``like``. If ``like`` is None, nothing is added and ``sum`` is None."""

    def __init__(self, like: Tensor | None):
        self.sum = None if like is None else torch.zeros_like(like)

    def add(self, tile: Tensor) -> None:
        """Add a tile, summed over the axes in which ``like`` has size 1."""
        if self.sum is not None:
            self.sum += tile.sum_to_size(self.sum.shape)
