"""The processes of a run: the accelerator, random states, and signals that ask for an end."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import torch

from .._extras import require
from .settings import Settings


def accelerator(settings: Settings) -> tuple[Any, Any]:
    """``(accelerator, ddp options)`` of accelerate for these settings, on the best device there is.

    Raises:
        ValueError: if fp16 is asked for where there is only a CPU, on which accelerate would compute in float32 without a word.
    """
    accelerate = require("accelerate")
    if settings.precision == "fp16" and not torch.accelerator.is_available():
        raise ValueError("precision must be no or bf16 on a CPU, got 'fp16', which needs a GPU")
    accelerate.state.AcceleratorState._reset_state()  # another run of this process may have used another precision
    ddp = accelerate.utils.DistributedDataParallelKwargs(find_unused_parameters=True)
    cpu = not torch.accelerator.is_available()
    return accelerate.Accelerator(mixed_precision=settings.precision, cpu=cpu, kwargs_handlers=[ddp]), ddp


def random_state() -> dict[str, Any]:
    """The state of torch's generators on this process."""
    state: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Put the generators into a kept state."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


@contextlib.contextmanager
def signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a second one acts as it did before."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _: object) -> None:
        stop.set()
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
