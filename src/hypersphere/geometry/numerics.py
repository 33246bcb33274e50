"""The precision of computations, and whether they need a graph.

Sums are computed in float32 or better for inputs of any dtype. While tracing, only plain operations are possible.
"""

import contextlib

import torch
from jaxtyping import Float
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
    """Return whether an operation on these tensors must be recorded: while tracing, or if a gradient may be computed.

    If not, the forward pass of a hand-written ``torch.autograd.Function`` is called directly, because for small tensors
    ``apply`` takes many times as long as the arithmetic.

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


def accumulation_dtype(*tensors: Tensor | None) -> torch.dtype:
    """Return the dtype for computing with these tensors: the widest of theirs, and at least float32.

    None is ignored.

    Raises:
        ValueError: If a tensor is not floating-point.

    >>> accumulation_dtype(torch.zeros(2, dtype=torch.bfloat16)), accumulation_dtype(torch.zeros(2).double(), None)
    (torch.float32, torch.float64)
    """
    dtype = torch.float32
    for tensor in tensors:
        if tensor is not None:
            if not tensor.is_floating_point():
                raise ValueError(f"x must be a floating-point tensor, got {tensor.dtype}")
            dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def upcast(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return ``x`` in the dtype of :func:`accumulation_dtype`: half precision as float32, anything wider unchanged.

    >>> upcast(torch.zeros(2, dtype=torch.float16)).dtype
    torch.float32
    """
    return x if x.dtype in (torch.float32, torch.float64) else x.to(accumulation_dtype(x))


def disable_autocast(device_type: str) -> contextlib.AbstractContextManager[object]:
    """Disable autocast if it is on; otherwise do nothing, because entering ``torch.autocast`` takes as long as several operations.

    >>> with torch.autocast("cpu", torch.bfloat16), disable_autocast("cpu"):
    ...     (torch.eye(2) @ torch.eye(2)).dtype
    torch.float32
    """
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()
