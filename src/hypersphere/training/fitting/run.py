"""The result of a fit: its folder with the embedder, the report on identities not trained on, and pictures of errors.

Samples that take long to prepare, aligned faces and windows of recordings, are prepared once and kept in memory.
"""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import safetensors.torch
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from ... import plots
from ...data import AudioPreprocessing, DataError, InMemory, Preprocessing, Record, Source
from ...data.loader import map_ahead
from ...data.sources.source import OnError
from ...evaluation import Baseline, OpenSetReport, open_set_report
from ...files import checksum, write_atomically
from ...recognition import Embedder, Evaluation, extract_features
from ...recognition.embedder import read_file
from ..datasets import Samples, WindowSamples, embed_with, read_samples
from .choices import Choice

EMBEDDER, HELD_OUT, REPORT, CHOICES, CHECK = (
    *("embedder.safetensors", "held_out.safetensors", "report.json", "choices.json", "check.json"),
)
FEATURES = "hypersphere-held-out/1"
WORST, CONFUSED, EXAMPLES = 12, 8, 3
MAX_PREPARED_BYTES = 2 << 30  # of all prepared windows
MAX_TRAINING_WINDOWS = 20  # of one recording
CROP_ROOM = 1.5  # length of a training window in windows of the network, so that a random crop moves
SAMPLES_PER_TASK = 16  # samples that a thread prepares at a time


class Run:
    """A finished fit, read lazily from its folder.

    Args:
        folder: The folder of the run.
        trust: Import code outside the library that the embedder file names. Use it only for your own runs.

    Raises:
        ValueError: If the folder contains no finished fit.

    >>> import tempfile
    >>> from hypersphere.training import Run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, content in (("report", {"figures": {"eer": {"value": 0.02}}}), ("choices", {"choices": []})):
    ...         _ = pathlib.Path(folder, f"{name}.json").write_text(json.dumps(content))
    ...     pathlib.Path(folder, "held_out.safetensors").touch()  # what a fit has left
    ...     Run(folder).metrics
    {'eer': 0.02}
    """

    def __init__(self, folder: str | os.PathLike[str], *, trust: bool = False):
        self.folder, self.trust = pathlib.Path(folder), trust
        absent = [name for name in (REPORT, CHOICES, HELD_OUT) if not (self.folder / name).is_file()]
        if absent:
            raise ValueError(f"{self.folder} holds no finished fit: there is no {absent[0]} in it")

    @functools.cached_property
    def embedder(self) -> Embedder:
        """The trained network with its preprocessing: pictures in, features out."""
        return Embedder.load(self.folder / EMBEDDER, trust=self.trust)

    @functools.cached_property
    def report(self) -> OpenSetReport:
        """The report on identities that were not trained on, computed from their stored features."""
        return read_report(self.folder / HELD_OUT)

    @functools.cached_property
    def metrics(self) -> dict[str, Any]:
        """The report's figures by name, without units and intervals; rates are fractions of 1."""
        figures = json.loads((self.folder / REPORT).read_text(encoding="utf-8"))["figures"]
        return {name: figure["value"] for name, figure in figures.items()}

    @functools.cached_property
    def baselines(self) -> tuple[Baseline, ...]:
        """Simple methods and pretrained networks on the same identities, the best first."""
        content = json.loads((self.folder / REPORT).read_text(encoding="utf-8"))
        return tuple(Baseline.from_dict(values) for values in content.get("baselines", ()))

    @functools.cached_property
    def choices(self) -> list[Choice]:
        """The choices with their reasons."""
        content = json.loads((self.folder / CHOICES).read_text(encoding="utf-8"))
        return [Choice(**choice) for choice in content["choices"]]

    @functools.cached_property
    def check(self) -> dict[str, Any]:
        """The result of the data check."""
        return dict(json.loads((self.folder / CHECK).read_text(encoding="utf-8")))

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"


def embed_samples(embedder: Embedder, samples: Samples, batch: int = 256) -> Float[Tensor, "n d"]:
    """Return the features of samples by an embedder, on the CPU."""
    return extract_features(
        embed_with(lambda stored: embedder(stored, batch), samples),
        lambda index: read_samples(samples, index),
        len(samples),
        batch,
    )


def write_features(
    path: pathlib.Path,
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    records: Sequence[Record],
    *,
    trained: bool = False,
) -> None:
    """Write features of measured samples with their identities, names and categories atomically.

    Args:
        path: The file to write.
        features: One row per picture.
        labels: The identity of each picture.
        records: Name, identity and category of each picture.
        trained: Whether the network was trained on these identities.
    """
    content = {
        "trained": trained,
        "names": [record.name for record in records],
        "identities": [record.label for record in records],
        "categories": [record.category for record in records],
    }
    tensors = {"features": features.contiguous(), "labels": labels.contiguous()}
    header = {FEATURES: json.dumps({**content, "sha256": checksum(content, tensors)})}
    write_atomically(path, lambda temporary: safetensors.torch.save_file(tensors, temporary, header), private=True)


def read_report(path: str | os.PathLike[str]) -> OpenSetReport:
    """Return the report on the features that :func:`write_features` wrote."""
    content, tensors = read_file(path, FEATURES)
    if content.pop("sha256", None) != checksum(content, tensors):
        raise ValueError(f"{path} is damaged: its checksum does not fit its content")
    categories = content["categories"]
    known = None if any(category is None for category in categories) else categories
    report = open_set_report(tensors["features"], tensors["labels"], categories=known)
    return TrainedIdentitiesReport(**vars(report)) if content.get("trained") else report


class TrainedIdentitiesReport(OpenSetReport):
    """The report of a fit with ``validation=0``, whose measured identities are the trained ones."""

    title = "recognition of the identities that were trained on"


def describe_report(
    report: OpenSetReport,
    features: Float[Tensor, "n d"],
    samples: Samples,
    records: Sequence[Record],
    baselines: tuple[Baseline, ...] = (),
    **facts: Any,
) -> dict[str, Any]:
    """Return the report as plain values, in the schema of ``hypersphere evaluate``, with its curves and identities."""
    owner = {int(label): record.label for label, record in zip(report.labels.tolist(), records, strict=True)}
    classes = tuple(owner.get(label, "") for label in range(int(report.labels.max()) + 1))
    names = tuple(record.name for record in records)
    evaluation = Evaluation(
        report=report,
        comparisons=(),
        facts=facts,
        notes=(),
        names=names,
        classes=classes,
        features=features,
        labels=report.labels,
        pixels=lambda index: draw_samples(samples, index),
        baselines=baselines,
    )
    return {**evaluation.content(), "held_out": sorted(set(owner.values())), "curves": report.data()}


def draw_report(report: OpenSetReport, samples: Samples, records: Sequence[Record], folder: pathlib.Path) -> list[str]:
    """Draw the ROC, the worst pairs of both kinds and the most confused identities; returns the names of the files."""
    folder.mkdir(exist_ok=True)
    drawn = {"roc.png": report.plot()[0]}
    accepts, rejects = report.worst_pairs()
    for name, pairs, title in (
        ("worst_different.png", accepts, "Different identities that look most alike"),
        ("worst_same.png", rejects, "Pictures of one identity that look least alike"),
    ):
        strips = [
            (
                _pictures(samples, [a, b]),
                f"{_short(records[a].label)} | {_short(records[b].label)}\ncosine {cosine:.2f}",
            )
            for a, b, cosine in list(
                zip(pairs.first.tolist(), pairs.second.tolist(), pairs.scores.tolist(), strict=True)
            )[:WORST]
        ]
        drawn[name] = plots.plot_contact_sheet(strips, title=title)[0]
    confused = report.list_confusions(CONFUSED)
    if confused:
        strips = []
        for who, other, times in confused:
            both = [torch.nonzero(report.labels == one).flatten()[:EXAMPLES].tolist() for one in (who, other)]
            names = [_short(records[side[0]].label) for side in both]
            strips.append(
                (
                    _pictures(samples, both[0] + both[1]),
                    f"{names[0]} taken for {names[1]}\n{'once' if times == 1 else f'{times} times'}",
                )
            )
        title = f"Identities most often taken for each other ({EXAMPLES} pictures of each)"
        drawn["confused.png"] = plots.plot_contact_sheet(strips, title=title, columns=2)[0]
    for name, figure in drawn.items():
        save = functools.partial(figure.savefig, dpi=130, format="png")
        write_atomically(folder / name, save)
    return list(drawn)


def _pictures(samples: Samples, index: Sequence[int]) -> list[Tensor]:
    return list(draw_samples(samples, torch.tensor(list(index))))


def _short(name: str) -> str:
    """Return a long name shortened to its beginning and end."""
    return name if len(name) <= 18 else f"{name[:8]}…{name[-9:]}"


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
    blocks = torch.arange(len(source)).split(SAMPLES_PER_TASK)
    for block in map_ahead(prepare, blocks, min(os.cpu_count() or 1, 4)):
        for found in block:
            position = len(kept) + len(unusable)
            if isinstance(found, Tensor):
                kept.append(position)
                windows.append(found)
                size += found.nbytes
            else:
                unusable[source.records[position].name] = found
            if size > MAX_PREPARED_BYTES:
                raise DataError(
                    f"the prepared samples of {source.name} need more than {MAX_PREPARED_BYTES >> 30} GB of memory: train on a part"
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
