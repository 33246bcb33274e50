"""The plan of a fit: settings given by the user or chosen from the data, and the samples of each split."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from ...config import Call, call, parameters
from ...data import (
    AudioPreprocessing,
    ClassBalancedSampler,
    DataError,
    PicturePreprocessing,
    Preprocessing,
    Source,
)
from ...recognition import Embedder
from ..build import build_base_preprocessing, choose_normalizer
from .backbones import read_processor, read_trained_backbone
from .choices import (
    MIN_WINDOW_SECONDS,
    USER_REASON,
    WINDOW_SECONDS,
    Choice,
    Chooser,
    Facts,
    choose_for_pretrained,
    choose_for_recordings,
    choose_input,
    choose_memory,
    choose_network,
    choose_number_of_networks,
    choose_training,
    format_value,
    measure_mirroring,
)
from .settings import FitSettings, Overrides
from .splits import (
    Division,
    PreparedSource,
    Splits,
    load_pictures,
    sample_pictures,
    split_pictures,
    split_prepared,
)

PATIENCE = 5  # evaluations, of ten in a run
MIN_DEVIATION = 1e-3  # of pixels in [0, 1], so that equal pictures are not divided by zero


@dataclasses.dataclass(frozen=True)
class Plan:
    """A complete plan of a fit.

    Attributes:
        settings: All settings.
        choices: The automatic choices with their reasons.
        preprocessing: How samples become inputs of the network.
        source: The usable samples.
        division: Which samples belong to which split.
        splits: The samples of each split.
        start: The pretrained embedder from which training starts, or None.
        prepared: The prepared samples, or None for pictures that are only cropped and resized.
    """

    settings: FitSettings
    choices: tuple[Choice, ...]
    preprocessing: Preprocessing
    source: Source
    division: Division
    splits: Splits
    start: Embedder | None = None
    prepared: PreparedSource | None = None

    @property
    def has_selection(self) -> bool:
        """Whether some identities select the weights and the last layer."""
        return len(self.division.selection) > 0


def choose_preprocessing(
    checked: dict[str, Any], overrides: Overrides, start: Embedder | None
) -> tuple[Preprocessing | None, str]:
    """Return the preprocessing of samples that are prepared once, and the reason; None for pictures that are only resized.

    Args:
        checked: The result of ``check``, as plain values.
        overrides: Settings of the user.
        start: The pretrained embedder to start from.

    Raises:
        DataError: If the source mixes pictures and recordings, or does not fit the pretrained embedder.
    """
    medium = checked["medium"]
    if start is not None:
        if medium != start.preprocessing.medium:
            raise DataError(
                f"{checked['source']} holds {medium}s, but {overrides.changes['start']} was trained on "
                f"{start.preprocessing.medium}s"
            )
        return start.preprocessing, f"the preprocessing of {overrides.changes['start']}"
    user_value = overrides.apply_to_defaults().get("preprocessing")
    if user_value is not None:
        return user_value.build(), USER_REASON
    if medium == "sample":
        raise DataError(f"{checked['source']} holds pictures and recordings: a network is trained on one kind")
    if medium != "recording":
        return None, ""
    median = checked["seconds"]["median"]
    seconds = min(max(0.9 * median, MIN_WINDOW_SECONDS), WINDOW_SECONDS)
    frames = 8 * round(100 * seconds / 8)
    automatic = call(AudioPreprocessing, frames=frames, step=frames // 2, bands=40, center=False)
    preprocessing: Preprocessing = overrides.apply_to_part("preprocessing", automatic).build()
    reason = f"recordings are cut into windows of {frames / 100:g} s (their median length is {median:.3g} s)"
    return preprocessing, f"{reason}; 40 mel bands train fast"


def make_plan(
    source: Source,
    checked: dict[str, Any],
    division: Division,
    overrides: Overrides,
    *,
    start: Embedder | None = None,
    prepared: PreparedSource | None = None,
) -> Plan:
    """Return the plan for a divided source. Settings that the user did not give are chosen from the data.

    Args:
        source: The usable samples.
        checked: The result of ``check``, as plain values.
        division: The samples of each split.
        overrides: Settings of the user.
        start: The pretrained embedder to start from.
        prepared: The prepared samples, for everything but pictures that are only cropped and resized.
    """
    chooser = Chooser(overrides.given, overrides.apply_to_defaults())
    has_selection = len(division.selection) > 0
    chooser.note("validation", division.reason)
    chooser.note("selection", division.selection_reason)
    reason = "the weights with the lowest EER of the selection identities are kept, even those before the first step"
    chooser.choose("keep_best", has_selection, reason if has_selection else "")
    if has_selection:
        chooser.choose(
            "patience", PATIENCE, f"training stops after {PATIENCE} evaluations in a row without a lower EER"
        )
    if prepared is None:
        return _plan_pictures(source, checked, division, overrides, chooser)
    return _plan_prepared(prepared, division, overrides, chooser, start)


def add_selection_to_training(plan: Plan) -> Plan:
    """Return the plan without a selection: its identities are trained on, too."""
    train = torch.cat([plan.division.train, plan.division.selection]).sort().values
    division = Division(train, plan.division.measured, plan.division.reason)
    if plan.prepared is not None:
        splits = split_prepared(plan.prepared, division, plan.settings.watched, crop=plan.start is None)
        splits = plan.splits._replace(train=splits.train, train_inputs=splits.train_inputs)
    else:
        assert isinstance(plan.preprocessing, PicturePreprocessing)
        samples = load_pictures(plan.source, train, plan.preprocessing, plan.settings)
        splits = plan.splits._replace(train=samples, train_inputs=samples)
    return dataclasses.replace(plan, division=division, splits=splits)


def _plan_pictures(
    source: Source, checked: dict[str, Any], division: Division, overrides: Overrides, chooser: Chooser
) -> Plan:
    """Plan a fit on pictures that are only cropped and resized."""
    is_gray = all(size["channels"] == 1 for size in checked["sizes"])
    facts = _count_facts(source, division, tuple(checked["median_size"]), 1 if is_gray else 3)
    backbone, stored, origin = _read_stored_preprocessing(chooser.tree.get("weights"), overrides)
    if stored is None:
        choose_input(chooser, facts)
    else:
        chooser.choose("size", stored.size, origin)
        chooser.choose("channels", stored.channels, origin)
    choose_network(chooser, facts, backbone)
    preprocessing = _build_preprocessing(chooser.tree.build(), stored)
    choose_memory(chooser, facts)
    splits = split_pictures(source, division, preprocessing, chooser.tree.build())
    pictures = sample_pictures(splits.train)
    choose_training(chooser, facts, pictures, measure_mirroring(splits.train))
    choose_number_of_networks(chooser, is_pretrained=overrides.model_folder is not None)
    settings, choices = _finish_settings(chooser, overrides)
    preprocessing = dataclasses.replace(preprocessing, mirror=bool(settings.mirror))
    if settings.normalize != "deviation" and (stored is None or "normalize" in overrides.given):
        normalizing = choose_normalizer(settings.normalize, preprocessing, splits.train)
        assert isinstance(normalizing, PicturePreprocessing)  # the settings refuse pixel_mean
        preprocessing = normalizing
    elif stored is None:
        levels = pictures.transpose(0, 1).flatten(1).double() / 255
        mean, deviation = levels.mean(1), levels.std(1).clamp_min(MIN_DEVIATION)
        preprocessing = preprocessing.with_statistics(tuple(mean.tolist()), tuple(deviation.tolist()))
    return Plan(settings, choices, preprocessing, source, division, splits)


def _read_stored_preprocessing(
    weights: str | None, overrides: Overrides
) -> tuple[Call | None, PicturePreprocessing | None, str]:
    """Return the backbone and the preprocessing that belong to given weights or to a folder of transformers, and its name."""
    backbone, stored, origin = None, None, "as for the given weights"
    if weights is not None and "backbone" not in overrides.given:
        trained = read_trained_backbone(weights)
        if trained is not None:
            backbone, preprocessing = trained
            if not isinstance(preprocessing, PicturePreprocessing):
                raise ValueError(
                    f"weights={weights} prepares its input with {type(preprocessing).__name__}: use start= (--from) "
                    "instead of weights="
                )
            stored = preprocessing
    if overrides.model_folder is not None:
        stored, origin = read_processor(overrides.model_folder), f"as in the processor of {overrides.model_folder}"
    return backbone, stored, origin


def _plan_prepared(
    prepared: PreparedSource, division: Division, overrides: Overrides, chooser: Chooser, start: Embedder | None
) -> Plan:
    """Plan a fit on samples that were prepared once: recordings, aligned faces, inputs of a pretrained network."""
    source, preprocessing = prepared.source, prepared.preprocessing
    if start is None:
        defaults = {name: parameter.default for name, parameter in parameters(type(preprocessing)).items()}
        changed = {name: value for name, value in preprocessing.arguments().items() if value != defaults[name]}
        chooser.choose("preprocessing", Call(type(preprocessing), changed), prepared.reason)
    chooser.choose("memory", True, "samples are prepared once and kept in memory")
    chooser.choose("workers", 0, "")
    splits = split_prepared(prepared, division, chooser.tree.get("watched"), crop=start is None)
    facts = dataclasses.replace(
        _count_facts(source, division, (1, 1), 1),
        images=len(splits.train),
        per_identity=float(torch.bincount(splits.train.labels).double().median()),
    )
    if start is not None:
        assert start.call is not None
        choose_for_pretrained(chooser, facts, start.call, preprocessing, chooser.tree.get("start"))
    elif isinstance(preprocessing, AudioPreprocessing):
        choose_for_recordings(chooser, facts, preprocessing)
    else:
        choose_network(chooser, facts, None)
        choose_training(chooser, facts, sample_pictures(splits.train), measure_mirroring(splits.train))
        choose_number_of_networks(chooser, is_pretrained=overrides.model_folder is not None)
    settings, choices = _finish_settings(chooser, overrides)
    if settings.mirror and not preprocessing.mirror:
        preprocessing = dataclasses.replace(preprocessing, mirror=True)  # type: ignore[type-var]
    return Plan(settings, choices, preprocessing, source, division, splits, start, prepared)


def _count_facts(source: Source, division: Division, size: tuple[int, int], channels: int) -> Facts:
    counts: Tensor = torch.bincount(source.part(division.train).labels)
    return Facts(
        images=len(division.train),
        identities=len(counts),
        per_identity=float(counts.double().median()),
        all_images=len(division.train) + len(division.measured),
        size=size,
        channels=channels,
        accelerated=torch.accelerator.is_available(),
    )


def _build_preprocessing(settings: FitSettings, stored: PicturePreprocessing | None) -> PicturePreprocessing:
    """Build the preprocessing of pictures without statistics of their pixels, or change the size of a stored one."""
    assert settings.input_size is not None
    assert settings.channels is not None
    if stored is not None:
        return dataclasses.replace(stored, size=settings.input_size, channels=settings.channels)
    return build_base_preprocessing(settings, (settings.channels, *settings.input_size))


def _finish_settings(chooser: Chooser, overrides: Overrides) -> tuple[FitSettings, tuple[Choice, ...]]:
    """Return the settings with all overrides, and the choices with their final values."""
    settings: FitSettings = chooser.restore_inherited(overrides.apply(chooser.tree)).build()
    sampler = settings.sampler
    if sampler is not None and sampler.target is ClassBalancedSampler and "batch_size" not in overrides.given:
        settings = settings.replace(batch_size=sampler.get("classes") * sampler.get("each"))
    choices = []
    for choice in chooser.choices:
        if choice.reason:
            is_changed = overrides.reaches_into(choice.key) and choice.key not in overrides.given
            reason = f"{choice.reason} (changed by you)" if is_changed else choice.reason
            choices.append(Choice(choice.key, format_value(getattr(settings, choice.key)), reason))
    return settings, tuple(choices)
