"""The one rule of precision: sums are taken in float32 or better, whatever the inputs are stored in."""

import contextlib

import torch
from jaxtyping import Float
from torch import Tensor


def accumulation_dtype(*tensors: Tensor | None) -> torch.dtype:
    """Return the dtype for computing with these tensors: the widest of theirs, and at least float32.

    ``None`` stands for a tensor that is not there. Tensors that are not floating-point are refused with a ValueError.

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
    """Disable autocast if it is on. Entering ``torch.autocast`` costs as much as several small operations.

    >>> with torch.autocast("cpu", torch.bfloat16), disable_autocast("cpu"):
    ...     (torch.eye(2) @ torch.eye(2)).dtype
    torch.float32
    """
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()
