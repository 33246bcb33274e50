"""Tiles of a tensor that stay in the processor's cache, for functions that apply several operations to one tile after the other."""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

TILE = 2**17
"""Entries per tile and CPU thread: 512 KiB in float32, so that a few tiles fit into the cache of a core."""


def iterate_tiles(whole: Float[Tensor, "n *rest"]) -> Iterator[slice]:
    """Yield slices of the first axis; on other devices than a CPU, one slice for the whole tensor.

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
    """Return memory for a gradient of the size of ``saved``: ``saved`` itself unless the graph is used again.

    Allocating memory costs as much as several passes over it. ``owned`` says that only the caller refers to ``saved``. The
    caller must read each part of ``saved`` before it writes the gradient there.

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
    """Return the gradients of ``function(*inputs)`` with a graph, for the second derivative of a hand-written backward.

    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> differentiate(torch.square, [x], torch.ones(1), [True])[0].requires_grad
    True
    """
    differentiated = [t for t, need in zip(inputs, needs, strict=True) if need and t is not None]
    gradients = iter(torch.autograd.grad(function(*inputs), differentiated, grad, create_graph=True))
    return [next(gradients) if need else None for need in needs]


def sum_into(out: Float[Tensor, "..."], tile: Float[Tensor, "..."]) -> None:
    """Write the sum of ``tile`` over the axes in which ``out`` has size 1 into ``out``.

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
    """The sum of several tiles in the shape of ``like``. If ``like`` is None, nothing is summed and ``sum`` is None."""

    def __init__(self, like: Tensor | None):
        self.sum = None if like is None else torch.zeros_like(like)

    def add(self, tile: Tensor) -> None:
        """Add a tile."""
        if self.sum is not None:
            self.sum += tile.sum_to_size(self.sum.shape)
