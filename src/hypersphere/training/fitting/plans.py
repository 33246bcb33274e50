"""The plan of a fit: settings that were asked for, those that the data decides, and steps for a time."""

import dataclasses
import json
import pathlib
from typing import Any

import torch

from ...config import Call
from ...data import ClassBalancedSampler, Preprocessing, Source
from .backbones import embedder_behind, processor_of
from .choices import Choice, Chosen, Facts, network_choices, picture_choices, shown, training_choices
from .division import Division
from .finished_run import CHOICES
from .fit_settings import FitSettings
from .fit_sides import looked_at
from .planning import steps_within
from .wishes import Wishes


@dataclasses.dataclass(frozen=True)
class Plan:
    """Settings with everything that the data decides, why, and how pictures become inputs."""

    settings: FitSettings
    choices: tuple[Choice, ...]
    preprocessing: Preprocessing


def make_plan(source: Source, found: dict[str, Any], division: Division, asked: Wishes) -> Plan:
    """Return the plan for a divided source: what ``check`` found decides what was not asked for."""
    counts = torch.bincount(source.part(division.train).labels)
    facts = Facts(
        images=len(division.train),
        identities=len(counts),
        per_identity=float(counts.double().median()),
        most=int(counts.max()),
        all_images=len(division.train) + len(division.measured),
        size=tuple(found["median_size"]),
        channels=1 if all(size["channels"] == 1 for size in found["sizes"]) else 3,
        accelerated=torch.accelerator.is_available(),
    )
    first = asked.carried_out(Call(FitSettings))
    chosen = Chosen(asked.keys, first)
    chosen.choices.append(Choice("validation", shown(first.get("validation")), division.reason))
    start = None if "backbone" in asked.keys else embedder_behind(first.get("weights"))
    processor, whose = None if start is None else start[1], "that of the weights"
    if asked.model_folder is not None:
        processor, whose = processor_of(asked.model_folder), f"the processor of {asked.model_folder}"
    if processor is None:
        picture_choices(chosen, facts)
    else:
        chosen.take("size", processor.size, whose)
        chosen.take("channels", processor.channels, whose)
    network_choices(chosen, facts, None if start is None else start[0])
    settings: FitSettings = chosen.tree.build()
    base = _preprocessing(settings, processor)
    pictures = looked_at(source, division.train, base)
    training_choices(chosen, facts, pictures)
    settings = _in_blocks(asked.carried_out(chosen.tree).build(), asked)
    choices = tuple(_as_set(choice, settings, asked) for choice in chosen.choices if choice.reason)
    base = dataclasses.replace(base, mirror=bool(settings.mirror))
    if processor is None:
        levels = pictures.transpose(0, 1).flatten(1).double() / 255
        base = base.with_statistics(tuple(levels.mean(1).tolist()), tuple(levels.std(1).clamp_min(1e-3).tolist()))
    return Plan(settings, choices, base)


def planned_steps(task: Any, folder: pathlib.Path, budget: Any, left: float, measured: int) -> tuple[int, str]:
    """Return the steps of the run in the folder if it was planned for the same time, else as many as are measured to fit."""
    try:
        stored = json.loads((folder / CHOICES).read_text(encoding="utf-8"))
        if stored["budget"] == budget:
            return int(stored["steps"]), f"planned for {budget} when the run was begun"
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no run has been begun here
    steps, speed = steps_within(task, left, measured)
    return steps, f"as many as fit into {budget} at {speed:.0f} images/s"


def with_steps(plan: Plan, asked: Wishes, steps: int, why: str) -> Plan:
    """Return the plan for another number of steps; what is counted in steps goes with it, unless the user set it."""
    changes: dict[str, Any] = {"steps": steps, "evaluate_every": max(steps // 10, 1)}
    changes |= {"checkpoint_every": max(min(steps // 10, 200), 1), "log_every": max(min(steps // 100, 50), 1)}
    settings = plan.settings.replace(**{key: value for key, value in changes.items() if key not in asked.keys})
    if "schedule" not in asked.keys and "warmup" in settings.schedule.arguments:
        settings = settings.replace(schedule__warmup=min(100, settings.steps // 10))
    choices = [c for c in plan.choices if c.key not in ("steps", "schedule")]
    choices += [Choice("steps", str(settings.steps), why)]
    return dataclasses.replace(plan, settings=settings, choices=tuple(choices))


def _as_set(choice: Choice, settings: FitSettings, asked: Wishes) -> Choice:
    """The choice with the value that it has in the end."""
    value = shown(getattr(settings, choice.key))
    changed = " (changed by you)" if asked.touches(choice.key) and choice.key not in asked.keys else ""
    return Choice(choice.key, value, choice.reason + changed)


def _preprocessing(settings: FitSettings, processor: Preprocessing | None) -> Preprocessing:
    assert settings.size is not None
    assert settings.channels is not None
    size = (settings.size[0], settings.size[-1])
    if processor is not None:
        return dataclasses.replace(processor, size=size, channels=settings.channels)
    return Preprocessing(
        size=size, channels=settings.channels, mean=0.0, std=1.0, crop=settings.crop, resize=settings.resize
    )


def _in_blocks(settings: FitSettings, asked: Wishes) -> FitSettings:
    """With P classes of K samples a batch is one such block, unless another size was asked for."""
    sampler = settings.sampler
    if sampler is None or sampler.target is not ClassBalancedSampler or "batch_size" in asked.keys:
        return settings
    changed: FitSettings = settings.replace(batch_size=sampler.get("classes") * sampler.get("each"))
    return changed
