"""The number of training steps that fit into a time."""

import dataclasses
import pathlib
import re
import time
from typing import Any

import torch

from ...files import read_json
from ..tasks import Recognition
from .choices import Choice, compute_intervals, count_warmup_steps
from .plan import Plan
from .run import CHOICES
from .settings import FitSettings, Overrides

TIMED_STEPS = 8  # after one step that warms up
STEP_SHARE = 0.92  # of the remaining time; the rest is for checkpoints and other programs
EVALUATIONS = 11  # during training: one before the first step and ten after
MIN_STEPS = 20
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def parse_seconds(budget: str | float) -> float:
    """Return a time in seconds: a number, or text such as ``90s``, ``10m``, ``1.5h`` and ``1h30m``.

    >>> parse_seconds("10m"), parse_seconds("1h30m"), parse_seconds(45)
    (600.0, 5400.0, 45.0)
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh]?)", str(budget))
    total = sum(float(number) * SECONDS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != str(budget) or not total > 0:
        raise ValueError(f"budget must be a time such as 90s, 10m or 1.5h, got {budget!r}")
    return total


def fit_plan_to_budget(
    plan: Plan, task: Recognition, overrides: Overrides, folder: pathlib.Path | None, budget: Any, seconds: float
) -> Plan:
    """Return the plan with as many steps as fit into the time that is left.

    Args:
        plan: The plan without a budget.
        task: The task to train.
        overrides: Settings of the user.
        folder: The folder of the run, whose planned steps are kept; None to plan anew.
        budget: The budget as the user wrote it.
        seconds: The time that is left for training.
    """
    networks = plan.settings.networks if "networks" in overrides.given else None
    measured = len(plan.division.measured)
    return replace_steps(plan, overrides, *plan_steps(task, plan.settings, networks, folder, budget, seconds, measured))


def plan_steps(
    task: Recognition,
    settings: FitSettings,
    networks: int | None,
    folder: pathlib.Path | None,
    budget: Any,
    seconds: float,
    measured: int,
) -> tuple[int, int, str]:
    """Return the planned steps of the run in the folder if its budget is the same, otherwise measure how many steps fit.

    A damaged file of choices is an error, because the run could not be continued with another number of steps.

    Args:
        task: The task to train.
        settings: The plan without a budget. Several networks are planned only if each gets at least its steps.
        networks: The number of networks if the user set it.
        folder: The folder of the run; None to plan anew.
        budget: The budget as the user wrote it.
        seconds: The time that is left for training.
        measured: The number of samples that are measured at the end.

    Returns:
        The number of steps of each network, the number of networks, and the reason.
    """
    stored = None if folder is None else read_json(folder / CHOICES)
    if stored is not None:
        if not (isinstance(stored, dict) and {"budget", "steps", "networks"} <= stored.keys()):
            raise ValueError(
                f"{folder}/{CHOICES} must hold budget, steps and networks of a run: choose another folder, or delete it"
            )
        if stored["budget"] == budget:
            return int(stored["steps"]), int(stored["networks"]), f"planned for {budget} when the run started"
    steps, speed = count_steps_within(task, seconds, measured)
    count = networks or max(1, min(settings.networks or 1, steps // settings.steps))
    return max(steps // count, 1), count, f"as many as fit into {budget} at {speed:.0f} samples/s"


def replace_steps(plan: Plan, overrides: Overrides, steps: int, networks: int, reason: str) -> Plan:
    """Return the plan for other numbers of steps and networks, with intervals and warm-up adapted unless the user set them."""
    changes: dict[str, Any] = {"steps": steps, "networks": networks, **compute_intervals(steps)}
    settings = plan.settings.replace(**{key: value for key, value in changes.items() if key not in overrides.given})
    if "schedule" not in overrides.given and "warmup" in settings.schedule.arguments:
        settings = settings.replace({"schedule.warmup": count_warmup_steps(settings.steps)})
    choices = [choice for choice in plan.choices if choice.key not in ("steps", "schedule", "networks")]
    choices += [Choice("steps", str(settings.steps), reason)]
    if plan.settings.networks is not None:
        if networks > 1:
            reason = "each network makes at least as many steps as without a budget"
        choices += [Choice("networks", str(settings.networks), reason)]
    return dataclasses.replace(plan, settings=settings, choices=tuple(choices))


def count_steps_within(task: Recognition, seconds: float, measured: int) -> tuple[int, float]:
    """Return how many steps fit into a time, and the training speed in samples per second.

    The time of evaluations and of the final report on ``measured`` samples is subtracted first. Weights, statistics, random
    numbers and the position of the loader are restored.
    """
    state = {name: tensor.clone() for name, tensor in task.state_dict().items()}
    position = task.loader.state_dict()
    with torch.random.fork_rng():
        step = _time_step(task)
        task.eval()
        start = time.perf_counter()
        with torch.no_grad():
            task.evaluate()
        evaluation = time.perf_counter() - start
    task.load_state_dict(state)
    task.loader.load_state_dict(position)
    remaining = seconds - EVALUATIONS * evaluation - evaluation * measured / len(task.measured_samples)
    steps = max(int(STEP_SHARE * remaining / step), MIN_STEPS)
    return steps, task.loader.batch_size / step  # type: ignore[attr-defined]


def _time_step(task: Recognition) -> float:
    """Return the median seconds of a step without the optimizer, whose time is negligible."""
    task.train()
    times: list[float] = []
    while len(times) <= TIMED_STEPS:
        for batch in task.loader:
            start = time.perf_counter()
            loss, _ = task(task.head_first, *(tensor.to(task.device) for tensor in batch))
            loss.backward()
            times.append(time.perf_counter() - start)
            if len(times) > TIMED_STEPS:
                break
    task.zero_grad()
    return sorted(times[1:])[len(times[1:]) // 2]
