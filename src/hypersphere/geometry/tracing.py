"""Whether something looks into every operation: then a derivative by hand gives way to plain operations."""

import torch


def is_traced() -> bool:
    """Return whether torch.compile, vmap, ``torch.func`` or forward-mode differentiation is active.

    >>> is_traced(), torch.func.vmap(lambda x: x * is_traced())(torch.ones(2))
    (False, tensor([1., 1.]))
    """
    if torch.compiler.is_compiling():
        return True
    level: int = torch.autograd.forward_ad._current_level
    return level >= 0 or torch._C._are_functorch_transforms_active()
