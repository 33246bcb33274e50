"""The plan of a fit: settings that were asked for, those that the data decides, and steps for a time."""

import dataclasses
import json
import pathlib
from typing import Any

import torch
from torch import Tensor

from ...config import Call
from ...data import ClassBalancedSampler, PicturePreprocessing, Source
from .backbones import embedder_behind, processor_of
from .choices import Choice, Chosen, Facts, memory_choices, network_choices, picture_choices, shown, training_choices
from .division import Division
from .finished_run import CHOICES
from .fit_settings import FitSettings
from .fit_sides import Sides, sample_pictures, samples
from .planning import steps_within
from .wishes import Wishes

PATIENCE = 5  # evaluations of the ten


@dataclasses.dataclass(frozen=True)
class Plan:
    """Settings with everything that the data decides, why, and how pictures become inputs."""

    settings: FitSettings
    choices: tuple[Choice, ...]
    preprocessing: PicturePreprocessing
    sides: Sides
    selects: bool = False
    """Whether some identities choose weights and last layer."""


def make_plan(
    source: Source,
    found: dict[str, Any],
    division: Division,
    asked: Wishes,
    selection: Tensor | None = None,
    why_selection: str = "",
) -> Plan:
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
    selects = selection is not None and len(selection) > 0
    chosen.choices.append(Choice("selection", shown(first.get("selection")), why_selection))
    chosen.take(
        "keep_best",
        selects,
        "those with the lowest EER of the selection identities, the first included" if selects else "",
    )
    if selects:
        chosen.take("patience", PATIENCE, f"training stops early after {PATIENCE} evaluations without a lower EER")
    start = None if "backbone" in asked.keys else embedder_behind(first.get("weights"))
    processor, whose = None, "that of the weights"
    if start is not None:
        if not isinstance(start[1], PicturePreprocessing):
            raise ValueError(
                f"weights={first.get('weights')} prepares its input with {type(start[1]).__name__}; fit trains on pictures"
            )
        processor = start[1]
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
    memory_choices(chosen, facts)
    settings = chosen.tree.build()
    sides = samples(
        source,
        division,
        base,
        memory=bool(settings.memory),
        cache=settings.cache,
        workers=settings.workers or 0,
        watched=settings.watched,
        selection=selection,
    )
    pictures = sample_pictures(sides.train)
    training_choices(chosen, facts, pictures)
    settings = _in_blocks(chosen.keep_automatic(asked.carried_out(chosen.tree)).build(), asked)
    choices = tuple(_as_set(choice, settings, asked) for choice in chosen.choices if choice.reason)
    base = dataclasses.replace(base, mirror=bool(settings.mirror))
    if processor is None:
        levels = pictures.transpose(0, 1).flatten(1).double() / 255
        base = base.with_statistics(tuple(levels.mean(1).tolist()), tuple(levels.std(1).clamp_min(1e-3).tolist()))
    return Plan(settings, choices, base, sides, selects)


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


def _preprocessing(settings: FitSettings, processor: PicturePreprocessing | None) -> PicturePreprocessing:
    assert settings.size is not None
    assert settings.channels is not None
    size = (settings.size[0], settings.size[-1])
    if processor is not None:
        return dataclasses.replace(processor, size=size, channels=settings.channels)
    return PicturePreprocessing(
        size=size, channels=settings.channels, mean=0.0, std=1.0, crop=settings.crop, resize=settings.resize
    )


def _in_blocks(settings: FitSettings, asked: Wishes) -> FitSettings:
    """With P classes of K samples a batch is one such block, unless another size was asked for."""
    sampler = settings.sampler
    if sampler is None or sampler.target is not ClassBalancedSampler or "batch_size" in asked.keys:
        return settings
    changed: FitSettings = settings.replace(batch_size=sampler.get("classes") * sampler.get("each"))
    return changed
