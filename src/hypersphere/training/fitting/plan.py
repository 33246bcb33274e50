"""The plan of a fit: settings given by the user or chosen from the data, the samples, and the steps that fit into a time."""

import dataclasses
import pathlib
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from ...config import Call, call
from ...data import (
    AudioPreprocessing,
    ClassBalancedSampler,
    DataError,
    InMemory,
    PicturePreprocessing,
    Preprocessing,
    Source,
    cache_decoded,
)
from ...files import read_json
from ...recognition import Embedder
from ...recognition.baselines import first_identities
from ..build import choose_normalizer
from ..datasets import Samples, WindowSamples
from ..tasks import Recognition
from .backbones import embedder_behind, processor_of
from .choices import (
    MIN_WINDOW_SECONDS,
    WINDOW_SECONDS,
    Choice,
    Chosen,
    Facts,
    choose_for_pretrained,
    choose_for_recordings,
    choose_input,
    choose_memory,
    choose_network,
    choose_networks,
    choose_training,
    format_value,
    measure_mirroring,
)
from .division import Division
from .run import CHOICES, Prepared, cut_training_windows
from .settings import FitSettings, Overrides

PATIENCE = 5  # evaluations, of ten in a run
MAX_INSPECTED = 2048  # pictures from which settings and statistics are taken
TIMED_STEPS = 8  # after one that warms up
SPARE = 0.92  # share of the remaining time that is planned for steps; the rest is for checkpoints and other programs
EVALUATIONS = 11  # during training: one before the first step and ten after
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


class Splits(NamedTuple):
    """The samples to train on, those measured in the report, and the few measured during training.

    ``exact`` are training samples as the embedder sees them, to which closed forms are fitted; those to train on may be
    longer parts of recordings.
    """

    train: Samples
    measured: Samples
    watched: Samples
    exact: Samples


@dataclasses.dataclass(frozen=True)
class Plan:
    """Complete settings with the reasons of automatic choices, the preprocessing, and the samples."""

    settings: FitSettings
    choices: tuple[Choice, ...]
    preprocessing: Preprocessing
    splits: Splits
    selects: bool = False
    """Whether some identities select weights and last layer."""
    start: Embedder | None = None
    """The pretrained embedder from which training starts."""


def choose_preprocessing(
    found: dict[str, Any], overrides: Overrides, start: Embedder | None
) -> tuple[Preprocessing | None, str]:
    """Return the preprocessing of samples that are prepared once, and the reason; None for pictures that are resized only.

    Args:
        found: What ``check`` found.
        overrides: Settings of the user.
        start: The pretrained embedder to start from.

    Raises:
        DataError: If the source mixes pictures and recordings, or does not fit the pretrained embedder.
    """
    medium = found["medium"]
    if start is not None:
        if medium != start.preprocessing.medium:
            raise DataError(
                f"{found['source']} holds {medium}s, but {overrides.changes['start']} was trained on "
                f"{start.preprocessing.medium}s"
            )
        return start.preprocessing, f"that of {overrides.changes['start']}"
    given = overrides.apply_to_defaults().get("preprocessing")
    if given is not None:
        return given.build(), "you asked for it"
    if medium == "sample":
        raise DataError(f"{found['source']} holds pictures and recordings: a network is trained on one kind")
    if medium != "recording":
        return None, ""
    seconds = min(max(0.9 * found["seconds"]["median"], MIN_WINDOW_SECONDS), WINDOW_SECONDS)
    frames = 8 * round(100 * seconds / 8)
    automatic = call(AudioPreprocessing, frames=frames, step=frames // 2, bands=40, center=False)
    built: Preprocessing = overrides.apply_to_part("preprocessing", automatic).build()
    return (
        built,
        f"windows of {frames / 100:g} s, {found['seconds']['median']:.3g} s at the median; 40 bands train fast",
    )


def make_plan(
    source: Source,
    found: dict[str, Any],
    division: Division,
    overrides: Overrides,
    selection: Tensor | None = None,
    why_selection: str = "",
    *,
    start: Embedder | None = None,
    prepared: tuple[Preprocessing, Prepared, str] | None = None,
) -> Plan:
    """Return the plan for a divided source; settings that the user did not give are chosen from what ``check`` found.

    Args:
        source: The samples.
        found: What ``check`` found, as plain values.
        division: The samples to train on and to measure.
        overrides: Settings of the user.
        selection: Positions of the selection identities.
        why_selection: The reason for this selection.
        start: The pretrained embedder to start from.
        prepared: Preprocessing, prepared samples and reason, for everything but pictures that are only resized.
    """
    chosen = Chosen(overrides.given, overrides.apply_to_defaults())
    chosen.choices.append(Choice("validation", format_value(chosen.tree.get("validation")), division.reason))
    selects = selection is not None and len(selection) > 0
    chosen.choices.append(Choice("selection", format_value(chosen.tree.get("selection")), why_selection))
    chosen.take(
        "keep_best",
        selects,
        "those with the lowest EER of the selection identities, the first included" if selects else "",
    )
    if selects:
        chosen.take("patience", PATIENCE, f"training stops early after {PATIENCE} evaluations without a lower EER")
    if prepared is None:
        return _plan_pictures(source, found, division, overrides, selection, chosen, selects)
    return _plan_prepared(source, prepared, division, overrides, selection, chosen, selects, start)


def _plan_pictures(
    source: Source,
    found: dict[str, Any],
    division: Division,
    overrides: Overrides,
    selection: Tensor | None,
    chosen: Chosen,
    selects: bool,
) -> Plan:
    """Plan a fit on pictures that are resized to one size."""
    one_channel = all(size["channels"] == 1 for size in found["sizes"])
    facts = _count_facts(source, division, tuple(found["median_size"]), 1 if one_channel else 3)
    first = chosen.tree
    behind = None if "backbone" in overrides.given else embedder_behind(first.get("weights"))
    processor, whose = None, "that of the weights"
    if behind is not None:
        if not isinstance(behind[1], PicturePreprocessing):
            raise ValueError(
                f"weights={first.get('weights')} prepares its input with {type(behind[1]).__name__}: use start= (--from) "
                "instead of weights="
            )
        processor = behind[1]
    if overrides.model_folder is not None:
        processor, whose = processor_of(overrides.model_folder), f"the processor of {overrides.model_folder}"
    if processor is None:
        choose_input(chosen, facts)
    else:
        chosen.take("size", processor.size, whose)
        chosen.take("channels", processor.channels, whose)
    choose_network(chosen, facts, None if behind is None else behind[0])
    settings: FitSettings = chosen.tree.build()
    base = _preprocessing(settings, processor)
    choose_memory(chosen, facts)
    settings = chosen.tree.build()
    splits = load_splits(
        source,
        division,
        base,
        memory=bool(settings.memory),
        cache=settings.cache,
        workers=settings.workers or 0,
        watched=settings.watched,
        selection=selection,
    )
    pictures = sample_pictures(splits.train)
    choose_training(chosen, facts, pictures, measure_mirroring(splits.train))
    choose_networks(chosen, overrides.model_folder is not None)
    settings, choices = _settle(chosen, overrides)
    base = dataclasses.replace(base, mirror=bool(settings.mirror))
    if settings.normalize != "deviation" and (processor is None or "normalize" in overrides.given):
        found_normalizer = choose_normalizer(settings.normalize, base, splits.train)
        assert isinstance(found_normalizer, PicturePreprocessing)  # pixel_mean is refused by the settings
        base = found_normalizer
    elif processor is None:
        levels = pictures.transpose(0, 1).flatten(1).double() / 255
        base = base.with_statistics(tuple(levels.mean(1).tolist()), tuple(levels.std(1).clamp_min(1e-3).tolist()))
    return Plan(settings, choices, base, splits, selects)


def _plan_prepared(
    source: Source,
    prepared: tuple[Preprocessing, Prepared, str],
    division: Division,
    overrides: Overrides,
    selection: Tensor | None,
    chosen: Chosen,
    selects: bool,
    start: Embedder | None,
) -> Plan:
    """Plan a fit on samples that were prepared once: recordings, aligned faces, inputs of a pretrained network."""
    preprocessing, ready, whose = prepared
    if start is None:
        chosen.take("preprocessing", Call(type(preprocessing), preprocessing.arguments()), whose)
    chosen.take("memory", True, "samples are prepared once")
    chosen.take("workers", 0, "")
    splits = split_prepared(
        source, ready, division, preprocessing, chosen.tree.get("watched"), selection, start is None
    )
    counts = torch.bincount(splits.train.labels)
    facts = dataclasses.replace(
        _count_facts(source, division, (1, 1), 1),
        images=len(splits.train),
        per_identity=float(counts.double().median()),
        most=int(counts.max()),
    )
    if start is not None:
        assert start.call is not None
        choose_for_pretrained(chosen, facts, start.call, preprocessing, chosen.tree.get("start"))
    elif isinstance(preprocessing, AudioPreprocessing):
        choose_for_recordings(chosen, facts, preprocessing)
    else:
        choose_network(chosen, facts, None)
        choose_training(chosen, facts, sample_pictures(splits.train), measure_mirroring(splits.train))
        choose_networks(chosen, overrides.model_folder is not None)
    settings, choices = _settle(chosen, overrides)
    if settings.mirror and not preprocessing.mirror:
        preprocessing = dataclasses.replace(preprocessing, mirror=True)  # type: ignore[type-var]
    return Plan(settings, choices, preprocessing, splits, selects, start)


def _count_facts(source: Source, division: Division, size: tuple[int, int], channels: int) -> Facts:
    counts = torch.bincount(source.part(division.train).labels)
    return Facts(
        images=len(division.train),
        identities=len(counts),
        per_identity=float(counts.double().median()),
        most=int(counts.max()),
        all_images=len(division.train) + len(division.measured),
        size=size,
        channels=channels,
        accelerated=torch.accelerator.is_available(),
    )


def _settle(chosen: Chosen, overrides: Overrides) -> tuple[FitSettings, tuple[Choice, ...]]:
    """Return the settings with all overrides, and the choices with their final values."""
    settings = _match_batch_to_blocks(chosen.keep_automatic(overrides.apply(chosen.tree)).build(), overrides)
    return settings, tuple(_update_choice(choice, settings, overrides) for choice in chosen.choices if choice.reason)


def split_prepared(
    source: Source,
    ready: Prepared,
    division: Division,
    preprocessing: Preprocessing,
    watched: int,
    selection: Tensor | None,
    crops: bool,
) -> Splits:
    """Return the splits of samples that were prepared once.

    Args:
        source: The usable samples.
        ready: The same, prepared.
        division: The samples to train on and to measure.
        preprocessing: Prepared them.
        watched: The largest number of samples to measure during training.
        selection: Positions of the selection identities; without them some measured identities are watched.
        crops: Whether training windows of recordings are longer than those of the network, for random crops.
    """

    def gather(index: Tensor) -> WindowSamples:
        part = source.part(index)
        return WindowSamples(
            [ready.windows[i] for i in index.tolist()], part.labels, part.classes, preprocessing.thumbnails
        )

    known, held_out = gather(division.train), gather(division.measured)
    measured = held_out if preprocessing.averages_windows else held_out.with_central_windows()
    train: Samples = InMemory(*known.list_all_windows(), known.classes)
    exact = known if preprocessing.averages_windows else train
    if crops and isinstance(preprocessing, AudioPreprocessing):
        train = cut_training_windows(source.part(division.train), preprocessing)
    chosen = division.measured if selection is None or not len(selection) else selection
    few = gather(chosen[first_identities(source.labels[chosen], watched)])
    return Splits(train, measured, few if preprocessing.averages_windows else few.with_central_windows(), exact)


def load_everyone(
    plan: Plan,
    source: Source,
    division: Division,
    selection: Int[Tensor, "k"],
    prepared: tuple[Preprocessing, Prepared, str] | None,
) -> Splits:
    """Return the splits of the plan with the selection identities among those to train on.

    Args:
        plan: The plan of the first network.
        source: The samples.
        division: The samples to train on and to measure.
        selection: Positions of the selection identities.
        prepared: Preprocessing, prepared samples and reason, for everything but pictures that are only resized.
    """
    index = torch.cat([division.train, selection]).sort().values
    settings = plan.settings
    if prepared is not None:
        everyone = division._replace(train=index)
        found = split_prepared(source, prepared[1], everyone, prepared[0], settings.watched, None, plan.start is None)
        return plan.splits._replace(train=found.train, exact=found.exact)
    assert isinstance(plan.preprocessing, PicturePreprocessing)
    samples = _decode(source, index, plan.preprocessing, bool(settings.memory), settings.cache, settings.workers or 0)
    return plan.splits._replace(train=samples, exact=samples)


def plan_steps(
    task: Any,
    settings: FitSettings,
    networks: int | None,
    folder: pathlib.Path | None,
    budget: Any,
    left: float,
    measured: int,
) -> tuple[int, int, str]:
    """Return the planned steps of the run in the folder if its budget is the same, otherwise measure how many steps fit.

    A damaged file of choices is an error, because another number of steps could not continue the run.

    Args:
        task: What is trained.
        settings: The plan without a budget. Several networks are planned only if each gets at least its steps.
        networks: The number of networks if the user set it.
        folder: The folder of the run; None to plan anew.
        budget: The budget as the user wrote it.
        left: Seconds that are left for training.
        measured: How many samples are measured at the end.

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
    steps, speed = count_steps_within(task, left, measured)
    count = networks or max(1, min(settings.networks or 1, steps // settings.steps))
    return max(steps // count, 1), count, f"as many as fit into {budget} at {speed:.0f} samples/s"


def with_steps(plan: Plan, overrides: Overrides, steps: int, networks: int, why: str) -> Plan:
    """Return the plan for other numbers of steps and networks, with intervals and warm-up adapted unless the user set them."""
    changes: dict[str, Any] = {"steps": steps, "networks": networks, "evaluate_every": max(steps // 10, 1)}
    changes |= {"checkpoint_every": max(min(steps // 10, 200), 1), "log_every": max(min(steps // 100, 50), 1)}
    settings = plan.settings.replace(**{key: value for key, value in changes.items() if key not in overrides.given})
    if "schedule" not in overrides.given and "warmup" in settings.schedule.arguments:
        settings = settings.replace({"schedule.warmup": min(100, settings.steps // 10)})
    choices = [c for c in plan.choices if c.key not in ("steps", "schedule", "networks")]
    choices += [Choice("steps", str(settings.steps), why)]
    if plan.settings.networks is not None:
        each = "each network has at least as many steps as without a budget" if networks > 1 else why
        choices += [Choice("networks", str(settings.networks), each)]
    return dataclasses.replace(plan, settings=settings, choices=tuple(choices))


def _update_choice(choice: Choice, settings: FitSettings, overrides: Overrides) -> Choice:
    """Return the choice with its final value."""
    value = format_value(getattr(settings, choice.key))
    changed = " (changed by you)" if overrides.reaches_into(choice.key) and choice.key not in overrides.given else ""
    return Choice(choice.key, value, choice.reason + changed)


def _preprocessing(settings: FitSettings, processor: PicturePreprocessing | None) -> PicturePreprocessing:
    size = settings.input_size
    assert size is not None
    assert settings.channels is not None
    if processor is not None:
        return dataclasses.replace(processor, size=size, channels=settings.channels)
    return PicturePreprocessing(
        size=size, channels=settings.channels, mean=0.0, std=1.0, crop=settings.crop, resize=settings.resize
    )


def _match_batch_to_blocks(settings: FitSettings, overrides: Overrides) -> FitSettings:
    """Make a batch one block of P classes with K samples if that sampler is used, unless the user set the batch size."""
    sampler = settings.sampler
    if sampler is None or sampler.target is not ClassBalancedSampler or "batch_size" in overrides.given:
        return settings
    changed: FitSettings = settings.replace(batch_size=sampler.get("classes") * sampler.get("each"))
    return changed


def load_splits(
    source: Source,
    division: Division,
    preprocessing: PicturePreprocessing,
    *,
    memory: bool,
    cache: str | None,
    workers: int,
    watched: int,
    selection: Int[Tensor, "k"] | None = None,
) -> Splits:
    """Return the splits of pictures that are resized only.

    Args:
        source: The pictures.
        division: The pictures to train on and to measure.
        preprocessing: Crops and resizes them.
        memory: Keep all decoded pictures in memory.
        cache: Folder for decoded pictures.
        workers: Threads that fill the cache.
        watched: The largest number of pictures to measure during training.
        selection: Positions of the selection identities; without them some measured identities are watched.
    """
    chosen = [selection] if selection is not None and len(selection) else []
    parts = (division.train, division.measured, *chosen)
    loaded = [_decode(source, index, preprocessing, memory, cache, workers) for index in parts]
    few = first_identities(loaded[-1].labels, watched)
    pictures, labels = loaded[-1].batch(few)
    few_samples = InMemory(*_renumber_labels(pictures, labels, loaded[-1].classes))
    return Splits(loaded[0], loaded[1], few_samples, loaded[0])


def _decode(
    source: Source, index: Tensor, preprocessing: PicturePreprocessing, memory: bool, cache: str | None, workers: int
) -> Any:
    dataset = source.part(index).dataset(preprocessing)
    decoded: Any = cache_decoded(dataset, cache, workers) if cache is not None else dataset
    return decoded.in_memory() if memory else decoded


def sample_pictures(samples: Samples, count: int = MAX_INSPECTED) -> UInt8[Tensor, "k c h w"]:
    """Return up to ``count`` pictures, spread evenly over the samples, from which settings are chosen."""
    few = torch.linspace(0, len(samples) - 1, min(len(samples), count)).long()
    return torch.cat([samples.batch(part)[0] for part in few.split(256)])


def _renumber_labels(data: Tensor, labels: Tensor, classes: Sequence[str]) -> tuple[Tensor, Tensor, list[str]]:
    present, owner = labels.unique(return_inverse=True)
    return data, owner, [str(classes[i]) for i in present.tolist()]


def parse_seconds(budget: str | float) -> float:
    """Return a time in seconds: a number, or text such as ``90s``, ``10m``, ``1.5h`` and ``1h30m``.

    >>> parse_seconds("10m"), parse_seconds("1h30m"), parse_seconds(45)
    (600.0, 5400.0, 45.0)
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh]?)", str(budget))
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != str(budget) or not total > 0:
        raise ValueError(f"budget must be a time such as 90s, 10m or 1.5h, got {budget!r}")
    return total


def count_steps_within(task: Recognition, budget: float, images: int) -> tuple[int, float]:
    """Return how many steps fit into ``budget`` seconds, and the training speed in samples per second.

    The time of evaluations and of the final report on ``images`` samples is subtracted first. Weights, statistics, random
    numbers and the position of the loader are restored.
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


def _step_seconds(task: Recognition) -> float:
    """Return the median time of a step without the optimizer, whose time is negligible."""
    task.train()
    times = []
    done = 0
    while done <= TIMED_STEPS:
        for batch in task.loader:
            start = time.perf_counter()
            loss, _ = task(task.head_first, *(tensor.to(task.device) for tensor in batch))
            loss.backward()
            times.append(time.perf_counter() - start)
            done += 1
            if done > TIMED_STEPS:
                break
    task.zero_grad()
    return sorted(times[1:])[len(times[1:]) // 2]
