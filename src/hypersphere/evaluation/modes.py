"""A context manager for evaluation mode."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

_lock = threading.Lock()
_held: dict[
    int, tuple[int, list[tuple[nn.Module, bool]]]
] = {}  # by model: blocks that run now, and the modes to restore


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode inside the block, and every module back into its own mode after it.

    Modes are restored one by one, so a BatchNorm that was frozen stays frozen, and also when the block raises. If several
    threads evaluate one model, the last one to leave restores the modes.

    >>> model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout().eval())
    >>> with evaluation_mode(model):
    ...     print([module.training for module in model])
    [False, False]
    >>> [module.training for module in model]
    [True, False]
    """
    with _lock:
        count, modes = _held.get(id(model), (0, []))
        if not count:
            modes = [(module, module.training) for module in model.modules()]
            if any(mode for _, mode in modes):
                model.eval()
        _held[id(model)] = (count + 1, modes)
    try:
        yield
    finally:
        with _lock:
            count, modes = _held.pop(id(model))
            if count > 1:
                _held[id(model)] = (count - 1, modes)
            else:
                for module, mode in modes:
                    module.training = mode
