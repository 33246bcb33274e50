"""Gradient checkpointing: save memory by recomputing activations in the backward pass."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def checkpoint_blocks(model: nn.Module) -> int:
    """Recompute the activations of every block in the backward pass. Return the number of blocks.

    A model of ``transformers`` uses its own implementation. Otherwise the blocks are the children of the
    ``nn.Sequential`` with the most parameters, or the children of the model. The recomputation costs one more forward pass,
    which does not update the statistics of batch normalization again.
    """
    enable = getattr(model, "gradient_checkpointing_enable", None)
    if callable(enable):
        enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return 1
    holders = [module for module in model.modules() if isinstance(module, nn.Sequential) and len(module) > 1]
    holder = max(holders, key=lambda m: sum(p.numel() for p in m.parameters()), default=model)
    blocks = [block for block in holder.children() if any(True for _ in block.parameters())]
    for block in blocks:
        block.forward = functools.partial(_run_with_recomputation, block, block.forward)  # type: ignore[method-assign]
    return len(blocks)


def _run_with_recomputation(block: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not block.training:
        return forward(*args, **kwargs)

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _freeze_running_statistics(block)

    return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)


@contextmanager
def _freeze_running_statistics(block: nn.Module) -> Iterator[None]:
    """Keep the running statistics of batch normalization. A batch is still normalized by its own statistics."""
    norms = [module for module in block.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    saved = [
        (norm.momentum, norm.num_batches_tracked.clone()) for norm in norms if norm.num_batches_tracked is not None
    ]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, saved, strict=True):
            norm.momentum = momentum
            assert norm.num_batches_tracked is not None
            norm.num_batches_tracked.copy_(count)
