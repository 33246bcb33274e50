"""Samples that are prepared once and kept in memory: aligned faces, and the windows of recordings."""

import dataclasses
import os
from typing import NamedTuple

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from ...data import AudioPreprocessing, DataError, InMemory, Preprocessing, Source
from ...data.prefetch import ahead
from ...data.sources.source import OnError
from ..datasets import Samples, WindowSamples

MAX_BYTES = 2 << 30  # of all prepared windows
MAX_TRAINING_WINDOWS = 20  # of one recording
CROP_ROOM = 1.5  # length of a training window in windows of the network, so that a random crop moves
BLOCK = 16  # samples that a thread prepares at a time


class Prepared(NamedTuple):
    """The usable samples of a source and the windows of each, (k, …), in the form that the preprocessing stores.

    Attributes:
        source: The usable samples.
        windows: Their windows.
        unusable: Name and reason of every other sample.
    """

    source: Source
    windows: list[Tensor]
    unusable: dict[str, str]


def prepare_source(source: Source, preprocessing: Preprocessing, on_error: str) -> Prepared:
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
        return [_prepare_one(source, i, preprocessing, policy) for i in index.tolist()]

    kept: list[int] = []
    windows: list[Tensor] = []
    unusable: dict[str, str] = {}
    size = 0
    blocks = torch.arange(len(source)).split(BLOCK)
    for block in ahead(prepare, blocks, min(os.cpu_count() or 1, 4)):
        for found in block:
            position = len(kept) + len(unusable)
            if isinstance(found, Tensor):
                kept.append(position)
                windows.append(found)
                size += found.nbytes
            else:
                unusable[source.records[position].name] = found
            if size > MAX_BYTES:
                raise DataError(
                    f"the prepared samples of {source.name} need more than {MAX_BYTES >> 30} GB of memory: train on a part"
                )
    if not kept:
        raise DataError(
            f"none of the {len(source)} samples of {source.name} is usable: {next(iter(unusable.values()))}"
        )
    return Prepared(source.part(torch.tensor(kept)) if unusable else source, windows, unusable)


def cut_training_windows(source: Source, preprocessing: AudioPreprocessing) -> InMemory:
    """Return windows to train on, longer than those of the network, so that random crops have room.

    At most 20 windows of a recording are taken, spread over its length.
    """
    longer = dataclasses.replace(
        preprocessing, frames=round(CROP_ROOM * preprocessing.frames), step=preprocessing.frames
    )
    data, labels = [], []
    for i in range(len(source)):
        found = source.load_all(i, longer)[0].windows(longer.shape)
        chosen = torch.linspace(0, len(found) - 1, min(len(found), MAX_TRAINING_WINDOWS)).round().long()
        data.append(found[chosen])
        labels += [int(source.labels[i])] * len(chosen)
    return InMemory(torch.cat(data), torch.tensor(labels), source.classes)


def draw_samples(samples: Samples, index: Int[Tensor, "b"]) -> UInt8[Tensor, "b c h w"]:
    """Return a picture of each sample, such as the spectrogram of a recording."""
    return samples.draw_pictures(index) if isinstance(samples, WindowSamples) else samples.batch(index)[0]


def _prepare_one(source: Source, index: int, preprocessing: Preprocessing, on_error: OnError) -> Tensor | str:
    found = source.load_usable(index, preprocessing, preprocessing.choose, on_error)
    return found if isinstance(found, str) else found[0].windows(preprocessing.shape)
