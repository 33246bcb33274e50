"""The folder of a finished fit: its embedder, the report on the measured identities, and pictures of errors."""

import functools
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import safetensors.torch
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from ... import plots
from ...data import AudioPreprocessing, Record
from ...evaluation import Baseline, OpenSetReport, open_set_report, spectrogram_features
from ...evaluation.evidence import FILE as EVIDENCE
from ...evaluation.evidence import Evidence, choose_samples, thumbnails
from ...files import checksum, write_atomically, write_json
from ...recognition import Embedder, Evaluation, extract_features
from ...recognition.baselines import MAX_PICTURES, first_identities, measure_baselines
from ...recognition.embedder import read_file
from ..datasets import Samples, WindowSamples, embed_with, read_samples
from ..run_folder import RunFolder
from .choices import Choice
from .plan import Plan

EMBEDDER = "embedder.safetensors"
HELD_OUT = "held_out.safetensors"  # features of the measured identities
REPORT = "report.json"
CHOICES = "choices.json"
CHECK = "check.json"
FEATURES_FORMAT = "hypersphere-held-out/1"
MAX_WORST_PAIRS = 12  # of each kind, in the pictures of the report
MAX_CONFUSED_PAIRS = 8  # pairs of identities, in the picture of confused identities
PICTURES_PER_IDENTITY = 3  # in the picture of confused identities
MAX_TRAINING_PICTURES = 4000  # to which the baselines PCA and LDA are fitted


class Run:
    """A finished fit, read lazily from its folder.

    Args:
        folder: The folder of the run.
        trust: Allow the embedder file to import code from outside the library. Use it only for your own runs.

    Raises:
        ValueError: If the folder contains no finished fit.

    >>> import tempfile
    >>> from hypersphere.training import Run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, content in (("report", {"figures": {"eer": {"value": 0.02}}}), ("choices", {"choices": []})):
    ...         _ = pathlib.Path(folder, f"{name}.json").write_text(json.dumps(content))
    ...     pathlib.Path(folder, "held_out.safetensors").touch()
    ...     Run(folder).metrics
    {'eer': 0.02}
    """

    def __init__(self, folder: str | os.PathLike[str], *, trust: bool = False):
        self.folder, self.trust = pathlib.Path(folder), trust
        missing = [name for name in (REPORT, CHOICES, HELD_OUT) if not (self.folder / name).is_file()]
        if missing:
            raise ValueError(f"{self.folder} holds no finished fit: there is no {missing[0]} in it")

    @functools.cached_property
    def embedder(self) -> Embedder:
        """The trained network with its preprocessing: samples in, features out."""
        return Embedder.load(self.folder / EMBEDDER, trust=self.trust)

    @functools.cached_property
    def report(self) -> OpenSetReport:
        """The report on the measured identities, computed from their stored features."""
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


def write_report(
    folder: pathlib.Path, plan: Plan, facts: dict[str, Any], features_before: Float[Tensor, "k e"] | None
) -> OpenSetReport:
    """Write the features, report and pictures of the measured samples into the folder of the run, and return the report.

    Args:
        folder: The folder, which holds the embedder.
        plan: The plan of the fit.
        facts: Facts about the training data for the report.
        features_before: Features of measured samples by the network before training, for comparison. None skips all
            baselines.
    """
    settings, samples = plan.settings, plan.splits.measured
    source = plan.source.part(plan.division.measured)
    run = RunFolder(folder)
    run.record(HELD_OUT, REPORT)
    features = embed_samples(Embedder.load(folder / EMBEDDER, trust=True), samples)
    rows, trained = plan.preprocessing.plural, settings.validation == 0
    write_features(folder / HELD_OUT, features, source.labels, source.records, rows=rows, trained=trained)
    report = read_report(folder / HELD_OUT)
    baselines = () if features_before is None else _measure_baselines(features, plan, features_before)
    if settings.pictures:
        _write_evidence(folder, features, samples, source.records)
        names = draw_report(report, samples, source.records, folder / "pictures")
        run.record(*(f"pictures/{name}" for name in names))
    write_json(folder / REPORT, describe_report(report, features, samples, source.records, baselines, **facts))
    return report


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
    rows: str = "images",
    trained: bool = False,
) -> None:
    """Write features of measured samples with their identities, names and categories atomically.

    Args:
        path: The file to write.
        features: One row per sample.
        labels: The identity of each sample.
        records: Name, identity and category of each sample.
        rows: What the samples are called in the report, such as ``images`` or ``recordings``.
        trained: Whether the network was trained on these identities.
    """
    content = {
        "rows": rows,
        "trained": trained,
        "names": [record.name for record in records],
        "identities": [record.label for record in records],
        "categories": [record.category for record in records],
    }
    tensors = {"features": features.contiguous(), "labels": labels.contiguous()}
    header = {FEATURES_FORMAT: json.dumps({**content, "sha256": checksum(content, tensors)})}
    write_atomically(path, lambda temporary: safetensors.torch.save_file(tensors, temporary, header), private=True)


def read_report(path: str | os.PathLike[str]) -> OpenSetReport:
    """Return the report on the features that :func:`write_features` wrote."""
    content, tensors = read_file(path, FEATURES_FORMAT)
    if content.pop("sha256", None) != checksum(content, tensors):
        raise ValueError(f"{path} is damaged: its checksum does not match its content")
    categories = content["categories"]
    if any(category is None for category in categories):
        categories = None
    report = open_set_report(tensors["features"], tensors["labels"], categories=categories, rows=content["rows"])
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
    names = {int(label): record.label for label, record in zip(report.labels.tolist(), records, strict=True)}
    classes = tuple(names.get(label, "") for label in range(int(report.labels.max()) + 1))
    evaluation = Evaluation(
        report=report,
        comparisons=(),
        facts=facts,
        notes=(),
        names=tuple(record.name for record in records),
        classes=classes,
        features=features,
        labels=report.labels,
        pixels=lambda index: draw_samples(samples, index),
        baselines=baselines,
    )
    return {**evaluation.content(), "held_out": sorted(set(names.values())), "curves": report.data()}


def draw_report(report: OpenSetReport, samples: Samples, records: Sequence[Record], folder: pathlib.Path) -> list[str]:
    """Draw the ROC, the worst pairs of both kinds and the most confused identities; return the names of the files."""
    folder.mkdir(exist_ok=True)
    figures = {"roc.png": report.plot()[0]}
    accepts, rejects = report.worst_pairs()
    for name, pairs, title in (
        ("worst_different.png", accepts, "Different identities that look most alike"),
        ("worst_same.png", rejects, "Pictures of one identity that look least alike"),
    ):
        strips = []
        columns = (pairs.first.tolist(), pairs.second.tolist(), pairs.scores.tolist())
        for a, b, cosine in list(zip(*columns, strict=True))[:MAX_WORST_PAIRS]:
            caption = f"{_shorten(records[a].label)} | {_shorten(records[b].label)}\ncosine {cosine:.2f}"
            strips.append((list(draw_samples(samples, torch.tensor([a, b]))), caption))
        figures[name] = plots.plot_contact_sheet(strips, title=title)[0]
    strips = []
    for label, predicted, times in report.list_confusions(MAX_CONFUSED_PAIRS):
        rows = [torch.nonzero(report.labels == one).flatten()[:PICTURES_PER_IDENTITY] for one in (label, predicted)]
        names = [_shorten(records[int(row[0])].label) for row in rows]
        caption = f"{names[0]} taken for {names[1]}\n{'once' if times == 1 else f'{times} times'}"
        strips.append((list(draw_samples(samples, torch.cat(rows))), caption))
    if strips:
        title = f"Identities most often confused with each other ({PICTURES_PER_IDENTITY} pictures of each)"
        figures["confused.png"] = plots.plot_contact_sheet(strips, title=title, columns=2)[0]
    for name, figure in figures.items():
        write_atomically(folder / name, functools.partial(figure.savefig, dpi=130, format="png"))
    return list(figures)


def draw_samples(samples: Samples, index: Int[Tensor, "b"]) -> UInt8[Tensor, "b c h w"]:
    """Return a picture of each sample, such as the spectrogram of a recording."""
    return samples.draw_pictures(index) if isinstance(samples, WindowSamples) else samples.batch(index)[0]


def _write_evidence(
    folder: pathlib.Path, features: Float[Tensor, "n d"], samples: Samples, records: Sequence[Record]
) -> None:
    """Write measured samples for the report page.

    They replace the samples that the trainer wrote, which belong to the identities used for model selection. Recordings
    include the names of their files, so that the page can play them.
    """
    chosen = choose_samples(samples.labels)
    pictures = thumbnails(draw_samples(samples, chosen))
    RunFolder(folder).record(EVIDENCE)
    labels = samples.labels[chosen].cpu()
    names = [records[i].name for i in chosen.tolist()] if isinstance(samples, WindowSamples) else None
    evidence = Evidence(features[chosen].float().cpu(), labels, list(samples.classes), len(samples), pictures, names)
    evidence.save(folder / EVIDENCE)


def _measure_baselines(
    features: Float[Tensor, "n d"], plan: Plan, features_before: Float[Tensor, "k e"]
) -> tuple[Baseline, ...]:
    """Measure the baselines on measured samples: simple methods, the network before training, pretrained networks."""
    settings, train, measured = plan.settings, plan.splits.train_inputs, plan.splits.measured
    rows = first_identities(plan.splits.measured.labels, MAX_PICTURES)
    train_rows = first_identities(train.labels, MAX_TRAINING_PICTURES)
    pictures, labels = train.batch(train_rows)
    if isinstance(train, WindowSamples):  # baselines are fitted to all windows of recordings
        pictures, labels = train.list_all_windows(train_rows)
    origin = settings.start or settings.weights or "the network"
    other_features = {f"{origin} before training": features_before}
    if isinstance(plan.preprocessing, AudioPreprocessing) and isinstance(measured, WindowSamples):
        other_features |= spectrogram_features(measured.list_windows(rows), (pictures, labels), plan.preprocessing)
    return measure_baselines(
        features[rows],
        plan.source.part(plan.division.measured[rows]),
        measured.batch(rows)[0],
        train=(pictures, labels),
        others=other_features,
        without=None if plan.start is None else plan.start.fingerprint,
        seed=settings.seed,
    )


def _shorten(name: str) -> str:
    """Return a long name shortened to its beginning and end."""
    return name if len(name) <= 18 else f"{name[:8]}…{name[-9:]}"
