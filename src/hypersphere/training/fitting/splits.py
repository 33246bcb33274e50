"""The splits of a source: identities to train on, to select weights with, and to measure in the report, and their samples.

Samples that take long to prepare, aligned faces and windows of recordings, are prepared once and kept in memory.
"""

import dataclasses
import os
from typing import Any, NamedTuple

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from ...data import (
    AudioPreprocessing,
    DataError,
    InMemory,
    PicturePreprocessing,
    Preprocessing,
    Source,
    cache_decoded,
    identity_split,
)
from ...data.loader import map_ahead
from ...data.sources.source import OnError
from ...recognition.baselines import first_identities
from ..datasets import Samples, WindowSamples
from .settings import FitSettings

MIN_TRAINING_IDENTITIES = 15  # below which none are set aside for selection
MAX_SELECTION_IDENTITIES = 200
MIN_REPORT_IDENTITIES = 3  # the least number that can be resampled for a confidence interval
TRAINING_NAMES = ("train", "training")  # of splits that a source brings
MEASURED_NAMES = ("test", "testing", "val", "valid", "validation")
MAX_PREPARED_BYTES = 2 << 30  # of all prepared windows
MAX_TRAINING_WINDOWS = 20  # of one recording
CROP_FACTOR = 1.5  # length of training windows in windows of the network, so that random crops differ
SAMPLES_PER_TASK = 16  # samples that a thread prepares at a time
MAX_INSPECTED = 2048  # pictures from which settings and statistics are computed


class Division(NamedTuple):
    """Positions of the samples of each split in the source, with reasons for the user.

    Attributes:
        train: Samples to train on.
        measured: Samples of the report.
        reason: Why these identities are measured.
        selection: Samples of the identities that select weights and last layer; may be empty.
        selection_reason: Why these identities select, or why none do.
    """

    train: Int[Tensor, "n"]
    measured: Int[Tensor, "m"]
    reason: str
    selection: Int[Tensor, "k"] = torch.arange(0)
    selection_reason: str = ""


class PreparedSource(NamedTuple):
    """The usable samples of a source, prepared once.

    Attributes:
        source: The usable samples.
        preprocessing: The preprocessing with which they were prepared.
        windows: The windows of each sample, (k, …), in the form that the preprocessing stores.
        unusable: Name and reason of every other sample.
        reason: Why this preprocessing was chosen, for the user.
    """

    source: Source
    preprocessing: Preprocessing
    windows: list[Tensor]
    unusable: dict[str, str]
    reason: str = ""


class Splits(NamedTuple):
    """The samples of each split.

    Attributes:
        train: Samples to train on. Windows of recordings may be longer than those of the network, for random crops.
        measured: Samples of the report.
        watched: Samples that are measured during training.
        train_inputs: Training samples as the embedder receives them, to which closed forms are fitted.
    """

    train: Samples
    measured: Samples
    watched: Samples
    train_inputs: Samples


def divide(source: Source, validation: float, least_images: int = 2) -> Division:
    """Divide the identities of a source into those to train on and those to measure.

    If the source has splits, the network is trained on the training split. The identities of its test split, or of its
    validation split, are measured unless they are in the training split as well. Otherwise a random part of the identities
    is measured, the same in every run, and at least three if there are nine. Identities with fewer than ``least_images``
    samples are left out.

    Args:
        source: Labeled pictures.
        validation: Share of the identities to measure; 0 trains on all identities and measures the same.
        least_images: The least number of pictures of an identity.

    Raises:
        DataError: If fewer than two identities are left to train on or to measure.

    >>> from hypersphere.data import ArraySource
    >>> source = ArraySource(torch.zeros(40, 4, 4, dtype=torch.uint8), torch.arange(40) // 4)
    >>> division = divide(source, 0.2)
    >>> len(division.train), len(division.measured)
    (28, 12)
    """
    names = {name.lower(): name for name in source.splits}
    training_split = next((names[name] for name in TRAINING_NAMES if name in names), None)
    measured_split = next((names[name] for name in MEASURED_NAMES if name in names), None)
    if training_split is not None and measured_split is not None and validation > 0:
        division = _divide_by_split(source, training_split, measured_split, least_images)
        if division is not None:
            return division
    usable = _drop_small_identities(source.labels, torch.arange(len(source)), least_images)
    identities = len(source.labels[usable].unique())
    if validation == 0:
        _check_identities(source, usable, usable, least_images)
        return Division(usable, usable, "with validation=0 the report measures the training identities")
    least = MIN_REPORT_IDENTITIES if identities >= 3 * MIN_REPORT_IDENTITIES else 2
    count = min(max(round(validation * identities), least), max(identities - 2, 0))
    shares = [1 - count / max(identities, 1), count / max(identities, 1)]
    train, measured = (usable[part] for part in identity_split(source.labels[usable], shares))
    _check_identities(source, train, measured, least_images)
    reason = f"{count} of {identities} identities are kept out of training for the report, the same in every run"
    return Division(train, measured, reason)


def separate_selection(source: Source, division: Division, share: float) -> Division:
    """Move some identities from training to the selection of the best weights and the last layer.

    They are not those of the report, which therefore has no part in any choice. At most ``MAX_SELECTION_IDENTITIES`` are
    moved, and none if there are fewer than ``MIN_TRAINING_IDENTITIES``: the network would lose more than the choice gains.

    Args:
        source: Labeled pictures.
        division: The division without a selection.
        share: Share of the training identities to move.

    >>> from hypersphere.data import ArraySource
    >>> source = ArraySource(torch.zeros(100, 4, 4, dtype=torch.uint8), torch.arange(100) // 4)
    >>> division = separate_selection(source, divide(source, 0.2), 0.2)
    >>> len(division.train) // 4, len(division.selection) // 4, len(division.measured) // 4
    (16, 4, 5)
    """
    labels = source.labels[division.train]
    identities = len(labels.unique())
    if share == 0 or torch.equal(division.train, division.measured):
        reason = "no identities are set aside to select weights, so the last weights are kept"
        return division._replace(selection_reason=reason)
    if identities < MIN_TRAINING_IDENTITIES:
        reason = (
            f"{identities} training identities are too few to set some aside for selecting weights, "
            "so the last weights are kept"
        )
        return division._replace(selection_reason=reason)
    count = min(max(round(share * identities), 3), MAX_SELECTION_IDENTITIES)
    train, selection = identity_split(labels, [1 - count / identities, count / identities], seed=1)
    in_report = len(source.labels[division.measured].unique())
    reason = (
        f"{count} identities are set aside to select the best weights and the last layer; they are neither trained on nor "
        f"among the {in_report} identities of the report"
    )
    return division._replace(train=division.train[train], selection=division.train[selection], selection_reason=reason)


def prepare_source(source: Source, preprocessing: Preprocessing, on_error: str) -> PreparedSource:
    """Prepare every sample of a source once.

    A sample in which nothing was found, such as a photograph without a face, is left out and listed.

    Args:
        source: The samples.
        preprocessing: Prepares them.
        on_error: ``"raise"`` refuses samples that cannot be used for another reason, such as silent recordings; ``"skip"``
            leaves them out as well.

    Raises:
        DataError: No sample is usable, one is not and ``on_error`` is ``"raise"``, or there are more than 2 GB of samples.
    """
    policy: OnError = "skip" if on_error == "skip" else "skip_empty"

    def prepare(index: Tensor) -> list[Tensor | str]:
        return [_prepare_sample(source, i, preprocessing, policy) for i in index.tolist()]

    usable: list[int] = []
    windows: list[Tensor] = []
    unusable: dict[str, str] = {}
    size = 0
    blocks = torch.arange(len(source)).split(SAMPLES_PER_TASK)
    for block in map_ahead(prepare, blocks, min(os.cpu_count() or 1, 4)):
        for result in block:
            position = len(usable) + len(unusable)
            if isinstance(result, Tensor):
                usable.append(position)
                windows.append(result)
                size += result.nbytes
            else:
                unusable[source.records[position].name] = result
            if size > MAX_PREPARED_BYTES:
                raise DataError(
                    f"the prepared samples of {source.name} need more than {MAX_PREPARED_BYTES >> 30} GB of memory: "
                    "train on a part"
                )
    if not usable:
        raise DataError(
            f"none of the {len(source)} samples of {source.name} is usable: {next(iter(unusable.values()))}"
        )
    part = source.part(torch.tensor(usable)) if unusable else source
    return PreparedSource(part, preprocessing, windows, unusable)


def split_prepared(prepared: PreparedSource, division: Division, watched: int, *, crop: bool) -> Splits:
    """Return the splits of samples that were prepared once.

    Args:
        prepared: The samples.
        division: The samples of each split.
        watched: The largest number of samples to measure during training: of the selection identities, or of the measured
            ones if there is no selection.
        crop: Whether training windows of recordings are longer than those of the network, for random crops.
    """
    source, preprocessing = prepared.source, prepared.preprocessing

    def gather(index: Tensor) -> WindowSamples:
        part = source.part(index)
        windows = [prepared.windows[i] for i in index.tolist()]
        return WindowSamples(windows, part.labels, part.classes, preprocessing.thumbnails)

    def gather_measured(index: Tensor) -> Samples:
        samples = gather(index)
        return samples if preprocessing.averages_windows else samples.with_central_windows()

    train_samples = gather(division.train)
    train: Samples = InMemory(*train_samples.list_all_windows(), train_samples.classes)
    train_inputs = train_samples if preprocessing.averages_windows else train
    if crop and isinstance(preprocessing, AudioPreprocessing):
        train = cut_training_windows(source.part(division.train), preprocessing)
    candidates = division.selection if len(division.selection) else division.measured
    watched_samples = gather_measured(candidates[first_identities(source.labels[candidates], watched)])
    return Splits(train, gather_measured(division.measured), watched_samples, train_inputs)


def cut_training_windows(source: Source, preprocessing: AudioPreprocessing) -> InMemory:
    """Return windows to train on, longer than those of the network, so that random crops differ.

    At most 20 windows of a recording are used, spread over its length.
    """
    longer = dataclasses.replace(
        preprocessing, frames=round(CROP_FACTOR * preprocessing.frames), step=preprocessing.frames
    )
    data, labels = [], []
    for i in range(len(source)):
        windows = source.load_all(i, longer)[0].windows(longer.shape)
        chosen = torch.linspace(0, len(windows) - 1, min(len(windows), MAX_TRAINING_WINDOWS)).round().long()
        data.append(windows[chosen])
        labels += [int(source.labels[i])] * len(chosen)
    return InMemory(torch.cat(data), torch.tensor(labels), source.classes)


def split_pictures(
    source: Source, division: Division, preprocessing: PicturePreprocessing, settings: FitSettings
) -> Splits:
    """Return the splits of pictures that are only cropped and resized.

    Args:
        source: The pictures.
        division: The pictures of each split.
        preprocessing: Crops and resizes them.
        settings: The settings memory, cache, workers and watched.
    """
    train = load_pictures(source, division.train, preprocessing, settings)
    measured = load_pictures(source, division.measured, preprocessing, settings)
    candidates = measured
    if len(division.selection):
        candidates = load_pictures(source, division.selection, preprocessing, settings)
    pictures, labels = candidates.batch(first_identities(candidates.labels, settings.watched))
    present, new_labels = labels.unique(return_inverse=True)
    classes = [str(candidates.classes[i]) for i in present.tolist()]
    return Splits(train, measured, InMemory(pictures, new_labels, classes), train)


def load_pictures(
    source: Source, index: Int[Tensor, "k"], preprocessing: PicturePreprocessing, settings: FitSettings
) -> Any:
    """Return some pictures of a source: in memory, in a file of decoded pictures, or decoded when they are needed."""
    dataset = source.part(index).dataset(preprocessing)
    decoded: Any = dataset
    if settings.cache is not None:
        decoded = cache_decoded(dataset, settings.cache, settings.workers or 0)
    return decoded.in_memory() if settings.memory else decoded


def sample_pictures(samples: Samples, count: int = MAX_INSPECTED) -> UInt8[Tensor, "k c h w"]:
    """Return up to ``count`` pictures, spread evenly over the samples, from which settings are chosen."""
    index = torch.linspace(0, len(samples) - 1, min(len(samples), count)).long()
    return torch.cat([samples.batch(part)[0] for part in index.split(256)])


def _prepare_sample(source: Source, index: int, preprocessing: Preprocessing, on_error: OnError) -> Tensor | str:
    """Return the windows of one sample, or the reason why it cannot be used."""
    usable = source.load_usable(index, preprocessing, preprocessing.choose, on_error)
    return usable if isinstance(usable, str) else usable[0].windows(preprocessing.shape)


def _divide_by_split(source: Source, training_split: str, measured_split: str, least_images: int) -> Division | None:
    """Divide a source by its own splits, or return None if these have the same identities."""
    positions = torch.arange(len(source))
    in_training = torch.tensor([record.split == training_split for record in source.records])
    in_measured = torch.tensor([record.split == measured_split for record in source.records])
    train = _drop_small_identities(source.labels, positions[in_training], least_images)
    unseen = in_measured & ~torch.isin(source.labels, source.labels[in_training])
    measured = _drop_small_identities(source.labels, positions[unseen], least_images)
    if len(source.labels[measured].unique()) < 2 or len(source.labels[train].unique()) < 2:
        return None
    shared = len(source.labels[in_measured].unique()) - len(source.labels[unseen].unique())
    without = f", without {shared} identities that are in {training_split} too" if shared else ""
    reason = f"the source has splits: {training_split} is trained on, {measured_split} is measured{without}"
    return Division(train, measured, reason)


def _drop_small_identities(labels: Int[Tensor, "n"], index: Int[Tensor, "k"], least_images: int) -> Int[Tensor, "m"]:
    """Return the positions in ``index`` whose identity has at least ``least_images`` samples among them."""
    counts = torch.bincount(labels[index], minlength=int(labels.max()) + 1)
    return index[counts[labels[index]] >= least_images]


def _check_identities(source: Source, train: Tensor, measured: Tensor, least_images: int) -> None:
    """Raise if fewer than two identities are left to train on or to measure."""
    if min(len(source.labels[part].unique()) for part in (train, measured)) < 2:
        least = max(least_images, 2)
        usable = _drop_small_identities(source.labels, torch.arange(len(source)), least)
        raise DataError(
            f"{source.name} holds {len(source.labels[usable].unique())} identities with at least {least} pictures; 4 are "
            "needed, 2 to train on and 2 that are never trained on to measure"
        )
