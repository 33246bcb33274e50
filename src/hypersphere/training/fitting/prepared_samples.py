"""Samples that are prepared once and kept in memory: aligned faces, and the windows of recordings."""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor

from ...data import AudioPreprocessing, DataError, InMemory, Preprocessing, Source, UnusableSampleError
from ...data.prefetch import ahead
from ...geometry import normalize
from ..datasets import Samples

MAX_BYTES = 2 << 30  # of all prepared windows
MAX_TRAINING_WINDOWS = 20  # of one recording
CROP_ROOM = 1.5  # length of a training window in windows of the network, so that a random crop moves
BLOCK = 16  # samples that a thread prepares at a time
SHOWN = 8  # names of unusable samples in a message


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


class WindowSamples:
    """Samples with any number of windows each.

    Args:
        windows: The windows (k, …) of each sample.
        labels: The identity of each sample.
        classes: The names of the identities.
        draw: Makes 8-bit pictures of stored windows, for reports.

    >>> samples = WindowSamples([torch.zeros(2, 4), torch.ones(1, 4)], torch.tensor([0, 1]), ("ann", "bob"), lambda x: x)
    >>> samples.batch(torch.tensor([1]))[0].tolist(), len(samples.list_windows(torch.tensor([0]))[0])
    ([[1.0, 1.0, 1.0, 1.0]], 2)
    """

    def __init__(
        self,
        windows: Sequence[Tensor],
        labels: Int[Tensor, "n"],
        classes: Sequence[str],
        draw: Callable[[Tensor], Tensor],
    ):
        self.windows, self.labels, self.classes, self.draw = list(windows), labels, tuple(classes), draw

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, index: Int[Tensor, "b"]) -> tuple[Shaped[Tensor, "b ..."], Int[Tensor, "b"]]:
        """Return the central window of each sample, and the labels."""
        chosen = [self.windows[i] for i in index.tolist()]
        return torch.stack([windows[len(windows) // 2] for windows in chosen]), self.labels[index]

    def list_windows(self, index: Int[Tensor, "b"]) -> list[Tensor]:
        """Return all windows of each sample."""
        return [self.windows[i] for i in index.tolist()]

    def draw_pictures(self, index: Int[Tensor, "b"]) -> UInt8[Tensor, "b c h w"]:
        """Return a picture of each sample."""
        return self.draw(self.batch(index)[0])

    def with_central_windows(self) -> InMemory:
        """Return one window of each sample."""
        return InMemory(*self.batch(torch.arange(len(self))), self.classes)


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

    def prepare(index: Tensor) -> list[Tensor | DataError]:
        return [_prepare_one(source, i, preprocessing) for i in index.tolist()]

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
            elif on_error == "skip" or isinstance(found, UnusableSampleError):
                name = source.records[position].name
                unusable[name] = str(found).removeprefix(f"{name}: ")
            else:
                raise DataError(f"{found}; remove it, or leave such samples out with on_error=skip") from found
            if size > MAX_BYTES:
                raise DataError(
                    f"the prepared samples of {source.name} need more than {MAX_BYTES >> 30} GB of memory: train on a part"
                )
    if not kept:
        raise DataError(
            f"none of the {len(source)} samples of {source.name} is usable: {next(iter(unusable.values()))}"
        )
    return Prepared(source.part(torch.tensor(kept)) if unusable else source, windows, unusable)


def list_unusable(unusable: dict[str, str], whole: int) -> str:
    """Return one line that names the samples that were left out.

    >>> list_unusable({"a.jpg": "no face was found"}, 10)
    '1 of 10 samples is left out: a.jpg (no face was found)'
    """
    named = [f"{name} ({reason})" for name, reason in list(unusable.items())[:SHOWN]]
    more = f" and {len(unusable) - SHOWN} more" if len(unusable) > SHOWN else ""
    verb = "is" if len(unusable) == 1 else "are"
    return f"{len(unusable)} of {whole} samples {verb} left out: {', '.join(named)}{more}"


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


def read_samples(samples: Samples, index: Int[Tensor, "b"]) -> Any:
    """Return samples as they are stored: all windows of each, or one tensor if each has one."""
    return samples.list_windows(index) if isinstance(samples, WindowSamples) else samples.batch(index)[0]


def draw_samples(samples: Samples, index: Int[Tensor, "b"]) -> UInt8[Tensor, "b c h w"]:
    """Return a picture of each sample, such as the spectrogram of a recording."""
    return samples.draw_pictures(index) if isinstance(samples, WindowSamples) else samples.batch(index)[0]


def embed_with(function: Callable[[Tensor], Tensor], samples: Samples) -> Callable[[Any], Tensor]:
    """Return a function of what :func:`read_samples` gives: the mean direction of the features of all windows.

    Args:
        function: Gives the features of a batch of windows.
        samples: Are read; the function itself is returned if they have no windows.
    """
    return functools.partial(average_windows, function) if isinstance(samples, WindowSamples) else function


def average_windows(
    function: Callable[[Tensor], Tensor], windows: Sequence[Tensor], batch: int = 64
) -> Float[Tensor, "n d"]:
    """Return the mean direction of the features of all windows of each sample.

    >>> average_windows(lambda x: x, [torch.eye(2), torch.tensor([[0.0, 2.0]])]).mul(10).round().tolist()
    [[7.0, 7.0], [0.0, 10.0]]
    """
    features = torch.cat([function(part) for part in torch.cat(list(windows)).split(batch)])
    owner = torch.arange(len(windows)).repeat_interleave(torch.tensor([len(part) for part in windows]))
    total = features.new_zeros(len(windows), features.shape[1])
    return normalize(total.index_add(0, owner.to(features.device), normalize(features)))


def _prepare_one(source: Source, index: int, preprocessing: Preprocessing) -> Tensor | DataError:
    try:
        return source.load_all(index, preprocessing, preprocessing.choose)[0].windows(preprocessing.shape)
    except DataError as error:
        return error
