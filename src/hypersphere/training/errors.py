"""Errors of a run: numbers that are not finite, and parts that do not fit together."""

import contextlib
from collections.abc import Iterator

import torch.distributed as dist

from ..files import is_out_of_memory

# Exceptions of networks, heads, tasks and optimizers that do not fit the samples.
MISFITS = (TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError, AssertionError)


class NonFiniteLossError(ValueError):
    """The loss or the weights became infinite or NaN; the message names the last good checkpoint.

    >>> import tempfile
    >>> from hypersphere.training import Classification, Settings, Trainer, call
    >>> data = hs.data.InMemory(torch.full((4, 3), torch.inf), torch.tensor([0, 1, 0, 1]), ("a", "b"))
    >>> task = Classification(torch.nn.Linear(3, 2), call(hs.objectives.Softmax), data)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Trainer(task, folder, Settings(steps=1, threads=1)).run()
    Traceback (most recent call last):
    ...
    hypersphere.training.errors.NonFiniteLossError: the features are not finite at step 0; none was saved. Try ...
    """


@contextlib.contextmanager
def explain_misfits() -> Iterator[None]:
    """Raise a ``ValueError`` in place of the error of a network, head, task or optimizer that does not fit the samples.

    Errors about exhausted memory or a lost process are not changed.
    """
    try:
        yield
    except MISFITS as error:
        reason = (str(error).strip().splitlines() or [repr(error)])[0]
        lost = isinstance(error, getattr(dist, "DistError", ())) or "gloo" in reason
        if lost or is_out_of_memory(error):
            raise
        raise ValueError(f"the parts of this run do not fit together: {reason}") from error
