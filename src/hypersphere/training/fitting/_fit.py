"""Train an embedder on pictures sorted by identity, in one call."""

import dataclasses
import hashlib
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...config import call, encode
from ...data import AudioPreprocessing, DataError, Preprocessing, Source, check, open_source
from ...data.sources.source import SKIP_ADVICE, list_missing, list_skipped
from ...evaluation import Baseline, OpenSetReport, format_baselines, spectrogram_features, summarize_baselines
from ...evaluation.evidence import FILE as EVIDENCE
from ...evaluation.evidence import Evidence, choose_samples, thumbnails
from ...files import read_json, write_json
from ...models import Projected
from ...recognition import Embedder, all_processes, extract_features, load
from ...recognition.baselines import MAX_PICTURES, first_identities, measure_baselines
from ..build import TaskData, assemble_task
from ..datasets import Samples, WindowSamples, embed_with, read_samples
from ..processes import seed_generators
from ..run_folder import RunFolder
from ..tasks import Recognition
from ..trainer import Callback, Progress, Trainer
from .backbones import load_folder_weights, weights_of
from .choices import Choice
from .division import Division, divide, separate_selection
from .last_layer import join_networks, refine_embedder
from .plan import Plan, Splits, choose_preprocessing, load_everyone, make_plan, parse_seconds, plan_steps, with_steps
from .run import (
    CHECK,
    CHOICES,
    EMBEDDER,
    HELD_OUT,
    REPORT,
    Prepared,
    Run,
    describe_report,
    draw_report,
    draw_samples,
    embed_samples,
    prepare_source,
    read_report,
    write_features,
)
from .settings import FitSettings, Overrides
from .tuning import imprint_head, tune_network

Say = Callable[[str], None]
MAX_TRAINING_PICTURES = 4000  # that PCA and LDA are fitted to
NETWORKS = "networks"  # folder inside that of the run, for the second and later networks
MIN_FREE_BYTES = 64 << 20  # on the disk of the run


def fit(
    source: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    settings: Mapping[str, Any] | Iterable[str] = (),
    budget: str | float | None = None,
    fresh: bool = False,
    quiet: bool = False,
    progress: Callable[[Trainer], Progress] | None = None,
    say: Say | None = None,
    write_page: Callable[[pathlib.Path], Any] | None = None,
    **more: Any,
) -> Run:
    """Train an embedder on pictures sorted by identity, and measure it on identities that were not in the training set.

    Everything that you do not set is chosen from the data: the identities to measure, the size of the pictures, augmentation,
    network, head, steps. Each choice comes with a reason, which is printed and kept in :attr:`Run.choices`. Calling it again
    with the same arguments continues a run that was stopped, with the same result as without the stop.

    Args:
        source: A folder with one sub-folder per identity, a table, tar shards, an ``.npz``, a saved dataset, a pair of
            arrays or a torch dataset: whatever :func:`~hypersphere.data.open_source` accepts.
        out: Folder of the run. The default is ``runs/`` and the source's name.
        settings: Settings by dotted key, with the keys of the command line, such as ``{"head.m": 0.3}``; or texts
            ``"head.m=0.3"``. :class:`FitSettings` lists them. An override of one argument keeps the automatic choice of
            the others.
        budget: A time such as ``"10m"``. The number of steps is planned by measuring the first ones.
        fresh: Delete a run that the folder holds and start over.
        quiet: Print nothing.
        progress: Called with the trainer; returns a function that is called with ``(step, row)`` for every row of the log.
        say: Called with each line for the user. The default prints it.
        write_page: Called with the folder of the finished run; ``hypersphere.report.write_page`` writes ``report.html``.
        **more: Settings of the first level, such as ``steps=100``.

    Returns:
        The finished run, with its embedder, report and choices.

    Raises:
        DataError: If the pictures cannot be used.
        ValueError: If a setting is wrong, or the folder holds another run.
        KeyboardInterrupt: If it was stopped. The same call continues.

    >>> import tempfile
    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 255, (32, 8, 8), dtype=np.uint8)  # eight identities, four pictures each
    >>> small = {"backbone.width": 0.1, "pictures": False, "threads": 1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = fit((images, np.arange(8).repeat(4)), folder, settings=small, steps=1, quiet=True)
    ...     run.metrics["identities"], len(run.embedder(list(images[:3])))
    (2, 3)
    """
    began = time.monotonic()
    prints = say is None and not quiet and os.environ.get("RANK", "0") == "0"
    tell: Say = (lambda line: None) if quiet else (say or _print)
    limit = None if budget is None else parse_seconds(budget)
    overrides = Overrides(settings)
    overrides = Overrides({**overrides.changes, **more}) if more else overrides
    first: FitSettings = overrides.apply_to_defaults().build()
    opened = open_source(source, **first.source_options, skip_missing=first.on_error == "skip")
    folder = pathlib.Path(out) if out is not None else pathlib.Path("runs") / _derive_name(opened.name)
    _check_disk(folder)
    found = _check_source(opened, folder, tell)
    opened = _keep_readable(opened, found, first, tell)
    start = None if first.start is None else load(first.start, accept_licence=first.accept_licence)
    opened, prepared = _prepare(opened, found, overrides, start, first.on_error, tell)
    division = divide(opened, first.validation, first.least_images)
    division, selection, why = separate_selection(opened, division, first.selection)
    plan = make_plan(opened, found, division, overrides, selection, why, start=start, prepared=prepared)
    splits = plan.splits
    facts = {"source": opened.name, "images": len(division.train), "identities": len(splits.train.classes)}
    task = _build_task(plan, facts, overrides.model_folder)
    if limit is not None and plan.settings.steps:
        left = limit - (time.monotonic() - began)
        given = plan.settings.networks if "networks" in overrides.given else None
        known = None if fresh else folder
        steps, count, why = plan_steps(task, plan.settings, given, known, budget, left, len(division.measured))
        plan = with_steps(plan, overrides, steps, count, why)
    for choice in plan.choices:
        tell(str(choice))
    document = {"fit": encode(plan.settings, defaults=True), "source": {**facts, "digest": _digest(opened, division)}}
    content: dict[str, Any] = {"budget": budget, "steps": plan.settings.steps, "networks": plan.settings.networks or 1}
    content |= {"choices": [vars(choice) for choice in plan.choices]}
    files = _WriteFiles({CHECK: found, CHOICES: content})
    trainer = Trainer(task, folder, plan.settings, callbacks=[files], fresh=fresh, document=document)
    _check_frozen(task, plan.settings)
    before = _features_before(task, splits) if plan.settings.baselines else None
    shown = _print_progress if prints and progress is None else progress
    trainer.run(None if shown is None else shown(trainer))
    if trainer.main and trainer.no_embedder is not None:
        raise ValueError(f"{folder} has no embedder: {trainer.no_embedder}")
    further: list[pathlib.Path] = []
    count = plan.settings.networks or 1
    if plan.selects and count > 1 and trainer.measured["step"] == 0:
        tell("further networks are not trained: the EER of the selection identities was lowest before training")
    elif count > 1:
        splits = load_everyone(plan, opened, division, selection, prepared) if plan.selects else splits
        further = _train_further(dataclasses.replace(plan, splits=splits), folder, document, overrides, fresh, tell)
    if trainer.main:
        for choice in _refine(folder, plan, content, further):
            tell(str(choice))
        report = _finish(folder, opened.part(division.measured), plan, facts, before)
        if write_page is not None:
            RunFolder(folder).record("report.html")
            write_page(folder)
    trainer.accelerator.wait_for_everyone()
    run = Run(folder, trust=True)  # the code that it names has just been running
    if trainer.main:
        run.report = report  # just computed, so they are not read from the file
        if prints:
            _print_report(run)
    return run


def _train_further(
    plan: Plan, folder: pathlib.Path, document: dict[str, Any], overrides: Overrides, fresh: bool, tell: Say
) -> list[pathlib.Path]:
    """Train the second and all other networks, each in a folder of its own inside that of the run; return these folders.

    Nothing selects their weights: they train to the end and keep the last ones.
    """
    folders = []
    count, identities = plan.settings.networks or 1, len(plan.splits.train.classes)
    for i in range(1, count):
        tell(f"network {i + 1} of {count} is trained on {identities} identities")
        settings = plan.settings.replace(
            seed=plan.settings.seed + i,
            keep_best=False,
            patience=None,
            pictures=False,
            evaluate_every=max(plan.settings.steps, 1),
        )
        facts = {**document["source"], "images": len(plan.splits.train), "identities": identities}
        own = {"fit": encode(settings, defaults=True), "source": facts}
        facts = {name: facts[name] for name in ("source", "images", "identities")}
        task = _build_task(dataclasses.replace(plan, settings=settings), facts, overrides.model_folder)
        folders.append(folder / NETWORKS / str(i + 1))
        Trainer(task, folders[-1], settings, fresh=fresh, document=own).run()
    return folders


def _build_task(plan: Plan, facts: dict[str, Any], model_folder: str | None) -> Recognition:
    """Build the task; its network is initialized from the seed of the settings or from the weights in a folder."""
    settings, splits, preprocessing = plan.settings, plan.splits, plan.preprocessing
    seed_generators(settings.seed)
    sample = preprocessing.normalize(splits.watched.batch(torch.arange(2))[0])
    data = TaskData(
        arguments={
            "train": splits.train,
            "measured": splits.watched,
            "frozen": settings.frozen,
            "head_first": settings.head_first,
            "facts": facts,
        },
        classes=len(splits.train.classes),
        sizes={} if plan.start is not None else _describe_input(sample),
        preprocessing=preprocessing,
        sample=sample,
    )
    read: Callable[[nn.Module], None] | None = None
    project = True if settings.project is None and settings.frozen else settings.project
    size: int | None = settings.feature_dim
    if plan.start is not None:
        size = settings.feature_dim if settings.project else None
        stored = plan.start.network.state_dict()
        read, project = lambda body: _copy_weights(body, stored), bool(settings.project)
    elif model_folder is not None and weights_of(model_folder) is not None:
        read = lambda body: load_folder_weights(body, model_folder)  # noqa: E731
    task = cast(
        Recognition,
        assemble_task(settings, call(Recognition), data, feature_size=size, project=project, load=read),
    )
    if plan.start is not None:
        tune_network(task, cast(str, settings.tune))
        if settings.steps:
            imprint_head(task, splits.exact)
    return task


def _describe_input(inputs: Tensor) -> dict[str, Any]:
    """Return the sizes of a batch of inputs by their argument names: pictures (b, c, h, w) or spectrograms (b, bands, frames)."""
    if inputs.ndim == 3:
        return {"bands": inputs.shape[1]}
    return {
        "in_channels": inputs.shape[1],
        "input_size": (int(inputs.shape[2]), int(inputs.shape[3])),
        "in_features": inputs[0].numel(),
    }


def _copy_weights(body: nn.Module, stored: Mapping[str, Tensor]) -> None:
    inner = getattr(body, "network", body) if isinstance(body, Projected) else body
    inner.load_state_dict(stored)


def _prepare(
    source: Source, found: dict[str, Any], overrides: Overrides, start: Embedder | None, on_error: str, tell: Say
) -> tuple[Source, tuple[Preprocessing, Prepared, str] | None]:
    """Prepare the usable samples of the source; return None for pictures that are only resized."""
    preprocessing, why = choose_preprocessing(found, overrides, start)
    if preprocessing is None:
        return source, None
    ready = prepare_source(source, preprocessing, on_error)
    for line in list_skipped(ready.unusable):
        tell(line)
    return ready.source, (preprocessing, ready, why)


def _print(line: str) -> None:
    print(line, flush=True)


def _print_progress(trainer: Trainer) -> Progress:
    """Print a line for every evaluation."""

    def show(step: int, row: dict[str, Any]) -> None:
        if "eer" in row:
            _print(f"step {step} of {trainer.settings.steps}: {format_measures(row, trainer.settings)}")

    return show


def format_measures(row: Mapping[str, Any], settings: Any) -> str:
    """Return EER, TAR and rank-1 of a row of the log as one line.

    >>> format_measures({"step": 3, "eer": 4.25, "tar@0.001": 61.0, "rank1": 80.5}, FitSettings())
    'unseen identities: EER 4.25 %, TAR at FAR 0.001 61 %, rank-1 80.5 %'
    """
    names = {"eer": "EER"}
    names |= {key: f"TAR at FAR {key.partition('@')[2]}" for key in row if key.startswith("tar@")}
    names |= {"rank1": "rank-1"}
    whose = "trained identities: " if settings.validation == 0 else "unseen identities: "
    return whose + ", ".join(f"{text} {row[key]:.3g} %" for key, text in names.items() if key in row)


def _print_report(run: Run) -> None:
    if run.baselines:
        _print(summarize_baselines(run.baselines))
    _print(str(run.report))
    for line in format_baselines(run.baselines):
        _print(line)
    _print(f"embedder, report, pictures and choices: {run.folder}")


def _refine(folder: pathlib.Path, plan: Plan, content: dict[str, Any], further: Sequence[pathlib.Path]) -> list[Choice]:
    """Join further networks, choose the last layer of the embedder and its descriptors, and write what was chosen."""
    first = Embedder.load(folder / EMBEDDER, trust=True)
    others = [Embedder.load(path / EMBEDDER, trust=True) for path in further]
    if plan.settings.last_layer == "none":
        if others:
            join_networks([first, *others], plan.splits.exact).save(folder / EMBEDDER)
        return []
    embedder, choices = refine_embedder(
        first,
        plan.splits.exact,
        plan.splits.watched if plan.selects else None,
        pretrained=plan.settings.weights is not None or plan.start is not None,
        further=others,
    )
    embedder.save(folder / EMBEDDER)
    write_json(folder / CHOICES, {**content, "choices": [*content["choices"], *map(vars, choices)]})
    return choices


class _WriteFiles(Callback):
    """Write JSON files into the folder of the run once it is locked."""

    def __init__(self, files: Mapping[str, Any]):
        self.files = files

    def on_start(self, trainer: Trainer) -> None:
        """The folder has been opened and locked."""
        if trainer.main:
            trainer.folder.record(*self.files)
            for name, content in self.files.items():
                write_json(trainer.folder.path / name, content)


def _check_frozen(task: Recognition, settings: FitSettings) -> None:
    """Raise if a frozen backbone would keep randomly initialized parts that the weights do not contain."""
    if not settings.frozen or settings.weights is None:
        return
    kept = {id(parameter) for parameter in task.backbone.parameters()}
    names = {name for name, parameter in task.model.named_parameters() if id(parameter) in kept}
    left = [name for name in (*task.started["missing"], *task.started["misshapen"]) if name in names]
    if left:
        raise ValueError(
            f"frozen=true would keep {len(left)} parts of the backbone as they started at random, such as {left[0]}, which "
            f"{settings.weights} does not fit: give the backbone= and feature_dim= that the weights were trained with"
        )


def _check_source(source: Source, folder: pathlib.Path, tell: Say) -> dict[str, Any]:
    """Return the check of the source as plain values, from the run folder if the source has not changed."""
    digest = _source_digest(source)
    try:
        stored = read_json(folder / CHECK)
    except ValueError as error:
        tell(f"the samples are checked again: {error}")
        stored = None
    if digest is not None and isinstance(stored, dict) and stored.get("digest") == digest:
        return stored
    report = check(source)
    tell(str(report))
    return {**report.to_json(), "digest": digest}


def _keep_readable(source: Source, found: dict[str, Any], settings: FitSettings, tell: Say) -> Source:
    bad = {**found["unreadable"], **list_missing(source)}
    if not bad:
        return source
    name, reason = next(iter(bad.items()))
    reason = reason.partition(f"{name}: ")[2] or reason  # the reason names the file too, with its folder
    if settings.on_error == "raise":
        more = f", and {len(bad) - 1} other pictures" if len(bad) > 1 else ""
        raise DataError(f"{name} cannot be read{more}: {reason}; {SKIP_ADVICE}")
    for line in list_skipped(bad):
        tell(line)
    kept = torch.tensor([i for i, record in enumerate(source.records) if record.name not in bad])
    return source.part(kept)


def _finish(
    folder: pathlib.Path,
    held_out: Source,
    plan: Plan,
    facts: dict[str, Any],
    before: Tensor | None,
) -> OpenSetReport:
    """Write the features, report and pictures of the measured samples into the run folder; return the report."""
    splits, settings = plan.splits, plan.settings
    run = RunFolder(folder)
    run.record(HELD_OUT, REPORT)
    embedder = Embedder.load(folder / EMBEDDER, trust=True)
    features = embed_samples(embedder, splits.measured)
    trained = settings.validation == 0
    write_features(folder / HELD_OUT, features, held_out.labels, held_out.records, trained=trained)
    report = read_report(folder / HELD_OUT)
    simple = () if before is None else _measure_baselines(features, held_out, splits, before, plan)
    if settings.pictures:
        _write_evidence(folder, features, splits.measured, held_out)
    drawn = draw_report(report, splits.measured, held_out.records, folder / "pictures") if settings.pictures else []
    run.record(*(f"pictures/{name}" for name in drawn))
    write_json(folder / REPORT, describe_report(report, features, splits.measured, held_out.records, simple, **facts))
    return report


def _write_evidence(folder: pathlib.Path, features: Tensor, samples: Samples, held_out: Source) -> None:
    """Write the samples of the report for the page; those that the trainer wrote are of the selection identities.

    Recordings have the names of their files, so that the page can play them.
    """
    chosen = choose_samples(samples.labels)
    pictures = thumbnails(draw_samples(samples, chosen))
    RunFolder(folder).record(EVIDENCE)
    labels = samples.labels[chosen].cpu()
    named = isinstance(samples, WindowSamples)
    names = [held_out.records[i].name for i in chosen.tolist()] if named else None
    evidence = Evidence(features[chosen].float().cpu(), labels, list(samples.classes), len(samples), pictures, names)
    evidence.save(folder / EVIDENCE)


def _features_before(task: Recognition, splits: Splits) -> Tensor:
    """Return features of measured samples by the untrained network, with all samples of an identity or none."""
    rows = first_identities(splits.measured.labels, MAX_PICTURES)
    training = task.training
    task.eval()
    with torch.no_grad(), torch.random.fork_rng():
        features = extract_features(
            embed_with(task.embed_batch, splits.measured),
            lambda index: read_samples(splits.measured, rows[index]),
            len(rows),
            64,
            group=all_processes(),
        )
    task.train(training)
    return features


def _measure_baselines(
    features: Tensor, held_out: Source, splits: Splits, before: Tensor, plan: Plan
) -> tuple[Baseline, ...]:
    settings = plan.settings
    rows = first_identities(held_out.labels, MAX_PICTURES)
    known = first_identities(splits.exact.labels, MAX_TRAINING_PICTURES)
    pictures, labels = splits.exact.batch(known)
    if isinstance(splits.exact, WindowSamples):  # simple methods are fitted to all windows of recordings
        pictures, labels = splits.exact.list_all_windows(known)
    origin = settings.start or settings.weights
    named = {"the network before training" if origin is None else f"{origin} before training": before}
    if isinstance(plan.preprocessing, AudioPreprocessing) and isinstance(splits.measured, WindowSamples):
        named |= spectrogram_features(splits.measured.list_windows(rows), (pictures, labels), plan.preprocessing)
    return measure_baselines(
        features[rows],
        held_out.part(rows),
        splits.measured.batch(rows)[0],
        train=(pictures, labels),
        others=named,
        without=None if plan.start is None else plan.start.fingerprint,
        seed=settings.seed,
    )


def _check_disk(folder: pathlib.Path) -> None:
    above = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not above.is_dir():
        raise ValueError(f"{above} is a file: choose another folder for the run")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ValueError(f"{above} cannot be written: choose another folder for the run")
    free = shutil.disk_usage(above).free
    if free < MIN_FREE_BYTES:
        raise ValueError(
            f"the disk of {above} is full: {free / 1e6:.0f} MB are free, {MIN_FREE_BYTES / 1e6:.0f} MB are needed for a run"
        )


def _source_digest(source: Source) -> str | None:
    try:
        return source.digest()
    except ValueError:  # the source has no files, so changes cannot be detected
        return None


def _digest(source: Source, division: Division) -> str:
    """Return a digest of the source or of its records, and of the division into splits, which pins a run to its data."""
    content = _source_digest(source) or repr(source.records)
    whole = f"{content}{division.train.tolist()}{division.measured.tolist()}"
    return hashlib.sha256(whole.encode()).hexdigest()


def _derive_name(name: str) -> str:
    return pathlib.Path(name).absolute().name.partition(".")[0] or "fit"
