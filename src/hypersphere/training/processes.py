"""The processes of a run: the accelerator, random states, stop signals, sharded heads, and the error if one is lost."""

import contextlib
import datetime
import os
import pathlib
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from .._extras import require
from ..collectives import is_distributed
from ..energy import Regularizer
from ..objectives import MarginSoftmax
from ..objectives.parallel import convert_stored, find_sharded_parameters, fit_state, gather_tree, ignore_shards
from .averaging import MovingAverage
from .settings import Settings


class LostProcessError(ConnectionError):
    """Another process of the run died or did not answer within ``timeout`` seconds. The message says how to resume.

    >>> with explain_lost_process(lambda: "at step 7; start it again, it goes on from step 5"):
    ...     raise RuntimeError("gloo: connection closed by peer")  # what torch raises when another process dies
    Traceback (most recent call last):
    ...
    hypersphere.training.processes.LostProcessError: process 0 of 1 lost another one (...) at step 7; start it again, ...
    """


def build_accelerator(settings: Settings, folder: pathlib.Path | None = None) -> tuple[Any, Any]:
    """Return the accelerator of ``accelerate`` on the best available device, and its options for DDP.

    Args:
        settings: The settings of the run.
        folder: The folder in which experiment trackers may write.

    Raises:
        ValueError: If the precision is fp16 on a CPU, where accelerate would silently compute in float32, or if a tracker is
            unknown or not installed.
    """
    accelerate = require("accelerate")
    _check_trackers(settings.trackers)
    if settings.precision == "fp16" and not torch.accelerator.is_available():
        raise ValueError("precision must be no or bf16 on a CPU, got 'fp16', which needs a GPU")
    accelerate.state.AcceleratorState._reset_state()  # an earlier run of this process may have used another precision
    ddp = accelerate.utils.DistributedDataParallelKwargs(find_unused_parameters=True)
    group = accelerate.utils.InitProcessGroupKwargs(timeout=datetime.timedelta(seconds=settings.timeout))
    cpu = not torch.accelerator.is_available()
    accelerator = accelerate.Accelerator(
        mixed_precision=settings.precision,
        cpu=cpu,
        kwargs_handlers=[ddp, group],
        log_with=list(settings.trackers) or None,
        project_dir=folder,
    )
    return accelerator, ddp


def _check_trackers(names: Sequence[str]) -> None:
    """Raise a ``ValueError`` if a tracker is unknown or not installed. accelerate itself would ignore it silently."""
    tracking = require("accelerate.tracking")
    known = tracking.LOGGER_TYPE_TO_CLASS
    built_in, installed = {str(name) for name in tracking.LoggerType}, map(str, tracking.get_available_trackers())
    missing = built_in - set(installed)
    for name in names:
        if name not in known:
            raise ValueError(f"trackers must be some of {', '.join(sorted(known))}, got {name!r}")
        if name in missing:
            raise ValueError(f"the tracker {name} is not installed: pip install {name}")


def move_to_device(batch: Sequence[Tensor], device: torch.device, channels_last: bool) -> tuple[Tensor, ...]:
    """Return a batch on the device of the run, pictures in the memory layout of the convolutions."""
    layouts = ((torch.channels_last if channels_last and x.ndim == 4 else torch.preserve_format) for x in batch)
    return tuple(x.to(device, non_blocking=True, memory_format=f) for x, f in zip(batch, layouts, strict=True))


def is_any(accelerator: Any, flag: bool) -> bool:
    """Return whether the flag is set on any process of the run. All processes must call this function."""
    if accelerator.num_processes == 1:
        return flag
    return bool(accelerator.reduce(torch.tensor(float(flag), device=accelerator.device)).item())


@contextlib.contextmanager
def explain_lost_process(describe_position: Callable[[], str]) -> Iterator[None]:
    """Raise a :class:`LostProcessError` if an operation of several processes fails.

    Its message contains the step of the run. A ``KeyboardInterrupt`` outside the steps, such as during the final writes, gets
    the same message. Other errors are not changed.

    Args:
        describe_position: Returns the step of the run and the step from which it would resume.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        if stop.args:
            raise
        raise KeyboardInterrupt(f"stopped {describe_position()}") from stop
    except RuntimeError as error:
        reason = next(iter(str(error).splitlines()), "")
        # gloo raises plain errors that contain its name. The store and NCCL raise an exception class of their own.
        if not (isinstance(error, getattr(dist, "DistError", ())) or "gloo" in reason):
            raise
        reason = re.sub(r"^\[[^]]*\] *", "", reason).split(". ")[0]  # remove the source line and the hint of gloo
        rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        raise LostProcessError(
            f"process {rank} of {world} lost another one ({reason}) {describe_position()}"
        ) from error


def broadcast_buffers(module: nn.Module) -> None:
    """Copy the buffers of the first process to all others, because statistics of batch normalization differ."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        ignored = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
        for name, buffer in module.named_buffers():
            if name not in ignored:
                dist.broadcast(buffer, 0)


def seed_generators(seed: int) -> None:
    """Seed the global generators of torch and numpy, because networks of users may draw from both."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002


def get_random_state() -> dict[str, Any]:
    """Return the states of the global generators of torch and numpy on this process.

    Python's own generator is left out. Libraries draw from it when they are imported, so its state is not reproducible.
    """
    kind, keys, *counters = np.random.get_state(legacy=True)  # noqa: NPY002
    state = {
        "cpu": torch.get_rng_state(),
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *counters],
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Restore the states of the global generators."""
    torch.set_rng_state(state["cpu"])
    kind, keys, *counters = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *counters))  # noqa: NPY002
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


@contextlib.contextmanager
def catch_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set. A second signal has its default effect."""
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


def shard_heads(task: nn.Module, device: torch.device, processes: int) -> None:
    """Shard every head that was created with ``parallel=True``, if there are several processes.

    Raises:
        ValueError: If a head is sharded, has sampled classes and is regularized at the same time.
    """
    heads = [m for m in task.modules() if isinstance(m, MarginSoftmax) and m.parallel and m.shards is None]
    if not heads or processes == 1:
        return
    energies = [m for m in task.modules() if isinstance(m, Regularizer) and m.classifier is not None and m.output > 0]
    if energies and any(head.sample is not None for head in heads):
        raise ValueError(
            f"sample must be none for a sharded head whose classes are regularized ({type(energies[0]).__name__}): the "
            "gradient of the regularizer has all rows, that of sampled classes only some; leave out sample= or "
            "parallel=, or set the regularizer's output to 0"
        )
    for head in heads:
        head.to(device).shard()
    ignore_shards(task)


def unshard_heads(task: nn.Module) -> None:
    """Gather sharded heads on every process before the results are written. All processes must call this function."""
    for module in task.modules():
        if isinstance(module, MarginSoftmax):
            module.unshard()


def gather_states(task: nn.Module, states: dict[str, Any]) -> dict[str, Any]:
    """Return the states of a checkpoint with shards gathered, so that any number of processes can load them."""
    if not is_distributed() or not find_sharded_parameters(task):
        return states
    return {name: gather_tree(state) for name, state in states.items()}


def load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load the state of an optimizer that was saved by any number of processes."""
    optimizer.load_state_dict(state)
    fit_state(optimizer)


def load_average(average: MovingAverage, state: dict[str, Any]) -> None:
    """Load an average that was saved by any number of processes."""
    shadow = {name: convert_stored(tensor, average.shadow[name]) for name, tensor in state["shadow"].items()}
    average.load_state_dict({**state, "shadow": shadow})
