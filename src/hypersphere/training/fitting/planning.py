"""How many steps fit into a time: measured on the first batches, which leave no trace."""

import re
import time

import torch

from .recognising import Recognising

MEASURED = 8  # steps that are timed, after one that warms up
SPARE = (
    0.92  # of the time that is left is planned for steps, the rest is for checkpoints and what else uses the machine
)
EVALUATIONS = 11  # during training: one before the first step and ten after
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def seconds(budget: str | float) -> float:
    """Return a time in seconds: a number, or text such as ``90s``, ``10m``, ``1.5h`` and ``1h30m``.

    >>> seconds("10m"), seconds("1h30m"), seconds(45)
    (600.0, 5400.0, 45.0)
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh]?)", str(budget))
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != str(budget) or not total > 0:
        raise ValueError(f"budget must be a time such as 90s, 10m or 1.5h, got {budget!r}")
    return total


def steps_within(task: Recognising, budget: float, images: int) -> tuple[int, float]:
    """Return how many steps fit into ``budget`` seconds, and the images trained on in a second.

    The time of evaluations, and of the report on ``images`` images at the end, is taken off first. Weights, statistics,
    random numbers and the position of the loader are as before.
    """
    state = {name: tensor.clone() for name, tensor in task.state_dict().items()}
    position = task.loader.state_dict()
    with torch.random.fork_rng():
        step = _step_seconds(task)
        task.eval()
        start = time.perf_counter()
        with torch.no_grad():
            task.evaluate()
        evaluation = time.perf_counter() - start
    task.load_state_dict(state)
    task.loader.load_state_dict(position)
    left = budget - EVALUATIONS * evaluation - evaluation * images / len(task.measured_samples)
    return max(int(SPARE * left / step), 20), task.loader.batch_size / step  # type: ignore[attr-defined]


def _step_seconds(task: Recognising) -> float:
    """The median time of a step of the network without the optimizer, which is little beside it."""
    task.train()
    times = []
    done = 0
    while done <= MEASURED:
        for batch in task.loader:
            start = time.perf_counter()
            loss, _ = task(task.head_first, *(tensor.to(task.device) for tensor in batch))
            loss.backward()
            times.append(time.perf_counter() - start)
            done += 1
            if done > MEASURED:
                break
    task.zero_grad()
    return sorted(times[1:])[len(times[1:]) // 2]
