"""The first time that the parts of a configured run meet: what does not fit is one sentence, not a traceback."""

import contextlib
from collections.abc import Iterator

import torch.distributed as dist

MISFITS = (TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError, AssertionError)


@contextlib.contextmanager
def fitting_together() -> Iterator[None]:
    """Turn what a network, head, task or optimizer of a config raises on samples that it is not made for into a ``ValueError``.

    Exhausted memory and the loss of another process pass as they are.
    """
    try:
        yield
    except MISFITS as error:
        reason = (str(error).strip().splitlines() or [repr(error)])[0]
        lost = isinstance(error, getattr(dist, "DistError", ())) or "gloo" in reason
        if lost or "memory" in reason:
            raise
        raise ValueError(f"the parts of this run do not fit together: {reason}") from error
