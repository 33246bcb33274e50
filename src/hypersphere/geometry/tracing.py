"""Which form of an operation is needed: plain operations while tracing, no autograd function without a gradient."""

import torch
from torch import Tensor


def is_traced() -> bool:
    """Return whether torch.compile, vmap, ``torch.func`` or forward-mode differentiation is active.

    >>> is_traced(), torch.func.vmap(lambda x: x * is_traced())(torch.ones(2))
    (False, tensor([1., 1.]))
    """
    if torch.compiler.is_compiling():
        return True
    level: int = torch.autograd.forward_ad._current_level
    return level >= 0 or torch._C._are_functorch_transforms_active()


def needs_graph(*tensors: Tensor | None) -> bool:
    """Return whether an operation on these tensors must be recorded: while tracing, or if a gradient is wanted.

    Without a graph, a hand-written ``torch.autograd.Function`` is skipped and its forward pass is called directly: for
    small tensors ``apply`` costs many times the arithmetic.

    Args:
        *tensors: The inputs of the operation; None is ignored.

    Returns:
        False only in eager mode, if no gradient will be computed.

    >>> needs_graph(torch.ones(1)), needs_graph(torch.ones(1, requires_grad=True))
    (False, True)
    """
    if is_traced():
        return True
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
