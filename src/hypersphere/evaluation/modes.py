"""A model in evaluation mode for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode inside the block, and every module back into its own mode after it.

    Modes are restored one by one, so a BatchNorm that was frozen stays frozen, and also when the block raises.

    >>> model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout().eval())
    >>> with evaluating(model):
    ...     print([module.training for module in model])
    [False, False]
    >>> [module.training for module in model]
    [True, False]
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
