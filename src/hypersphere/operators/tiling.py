"""Parts of a map that stay in the processor's cache, for functions that go through a whole chain of operations by hand."""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

TILE = 2**17
"""Numbers at a time for each thread of a CPU: 512 KiB in float32, of which a few fit into the caches of a core."""


def iterate_tiles(whole: Float[Tensor, "n *rest"]) -> Iterator[slice]:
    """Yield parts of the first axis; on other devices than a CPU, all of it at once.

    >>> list(iterate_tiles(torch.empty(3, 2**17 * torch.get_num_threads())))
    [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)]
    """
    n = whole.shape[0]
    if whole.device.type == "cpu" and whole.numel():
        size = max(1, TILE * torch.get_num_threads() * n // whole.numel())
    else:
        size = max(1, n)
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def allocate_gradient(kept: Tensor, ours: bool = True, dtype: torch.dtype | None = None) -> Tensor:
    """Return memory for a gradient of the size of ``kept``: that of ``kept`` itself if the graph is not used again.

    Fresh memory costs as much as several passes over it. ``ours`` says that nobody but the caller has ``kept``, which must
    have been read wherever the gradient is written.

    >>> allocate_gradient(torch.zeros(3), ours=False).shape
    torch.Size([3])
    """
    dtype = kept.dtype if dtype is None else dtype
    if ours and dtype == kept.dtype and not torch._C._autograd._get_current_graph_task_keep_graph():
        return kept
    return torch.empty_like(kept, dtype=dtype)


def differentiate(
    function: Callable[..., Tensor], inputs: Sequence[Tensor | None], grad: Tensor, needs: Sequence[bool]
) -> list[Tensor | None]:
    """Return the gradients of ``function(*inputs)`` with a graph, for the second derivative of a hand-written backward.

    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> differentiate(torch.square, [x], torch.ones(1), [True])[0].requires_grad
    True
    """
    wanted = [t for t, need in zip(inputs, needs, strict=True) if need and t is not None]
    found = iter(torch.autograd.grad(function(*inputs), wanted, grad, create_graph=True))
    return [next(found) if need else None for need in needs]


def sum_into(out: Float[Tensor, "..."], tile: Float[Tensor, "..."]) -> None:
    """Write the sum of ``tile`` over the axes in which ``out`` has 1 into ``out``.

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
    """The sum of many tiles over all axes but those of ``like``, a tile at a time; nothing where ``like`` is None."""

    def __init__(self, like: Tensor | None):
        self.sum = None if like is None else torch.zeros_like(like)

    def add(self, tile: Tensor) -> None:
        """Add one tile."""
        if self.sum is not None:
            self.sum += tile.sum_to_size(self.sum.shape)
