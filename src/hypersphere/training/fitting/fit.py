"""From pictures sorted by who or what is on them to a recogniser of others, in one call."""

import hashlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ...config import encode
from ...data import DataError, Source, check, open_source
from ...evaluation import Baseline, OpenSetReport
from ...files import write_json
from ...recognition import Embedder, all_processes, extract_features
from ...recognition.baselines import MAX_PICTURES, first_identities, measure_baselines
from ..callbacks import Callback, Progress
from ..run_folder import RunFolder
from ..trainer import Trainer
from .backbones import weights_of
from .building import build
from .choices import Choice
from .division import Division, divide, separate_selection
from .finished_run import CHECK, CHOICES, EMBEDDER, HELD_OUT, REPORT, Run
from .fit_settings import FitSettings
from .fit_sides import Sides
from .last_layer import choose_last_layer
from .planning import seconds
from .plans import make_plan, planned_steps, with_steps
from .recognising import Recognising
from .unseen_report import describe_report, draw_report, embed_samples, read_report, write_features
from .wishes import wanted, wishes

Say = Callable[[str], None]
MAX_TRAINING_PICTURES = 4000  # that PCA and LDA are fitted to
ROOM = 64 << 20  # bytes that must be free where a run is written


def fit(
    source: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    overrides: Iterable[str] = (),
    budget: str | float | None = None,
    fresh: bool = False,
    progress: Callable[[Trainer], Progress] | None = None,
    say: Say | None = None,
    write_page: Callable[[pathlib.Path], Any] | None = None,
    **settings: Any,
) -> Run:
    """Train a recogniser on pictures sorted by identity, and measure it on identities it never saw.

    Nothing has to be decided: identities are divided, the size of pictures, augmentation, head, steps and the rest are
    chosen from the data, each with a reason that :attr:`Run.choices` keeps. Called again with the same arguments a run
    that was stopped goes on, and computes what it would have.

    Args:
        source: A folder with a sub-folder for each identity, a table, tar shards, an ``.npz``, a saved dataset, a pair of
            arrays or a torch dataset: what :func:`~hypersphere.data.open_source` takes.
        out: Folder of the run; by default ``runs/`` and the source's name.
        overrides: Settings as text, ``key=value``; every knob of :class:`FitSettings` and of what it builds.
        budget: A time such as ``"10m"``, for which steps are planned by measuring the first ones.
        fresh: Forget a run that the folder holds.
        progress: Given the trainer, returns what is called with ``(step, row)`` for every row of the log.
        say: Called with each line that a user should read.
        write_page: Called with the folder of the finished run; ``hypersphere.report.write_page`` writes ``report.html``.
        **settings: Settings as Python values, those of parts as ``head__m``.

    Raises:
        DataError: if the pictures cannot be used, with one sentence that says why.
        ValueError: if a setting is wrong, or the folder holds another run.
        KeyboardInterrupt: when stopped; the same call goes on.

    >>> import tempfile
    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 255, (32, 8, 8), dtype=np.uint8)  # eight identities, four pictures each
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = fit((images, np.arange(8).repeat(4)), folder, steps=1, backbone__width=0.1, pictures=False, threads=1)
    ...     run.metrics["identities"], run.embedder(list(images[:3])).shape
    (2, torch.Size([3, 128]))
    """
    began = time.monotonic()
    tell = say or (lambda line: None)
    limit = None if budget is None else seconds(budget)
    asked = wishes(overrides, settings)
    first = wanted(asked)
    opened = open_source(source, **first.opening)
    folder = pathlib.Path(out) if out is not None else pathlib.Path("runs") / _stem(opened.name)
    _check_room(folder)
    found = _checked(opened, folder, tell)
    opened = _readable(opened, found, first)
    division = divide(opened, first.validation, first.least_images)
    division, selection, why = separate_selection(opened, division, first.selection)
    plan = make_plan(opened, found, division, asked, selection, why)
    sides = plan.sides
    facts = {"source": opened.name, "images": len(division.train), "identities": len(sides.train.classes)}
    folder_weights = None if asked.model_folder is None else weights_of(asked.model_folder)
    pretrained = asked.model_folder if folder_weights else None
    task = build(plan.settings, sides, plan.preprocessing, pretrained=pretrained, facts=facts)
    if limit is not None:
        steps, why = planned_steps(task, folder, budget, limit - (time.monotonic() - began), len(division.measured))
        plan = with_steps(plan, asked, steps, why)
    for choice in plan.choices:
        tell(str(choice))
    document = {"fit": encode(plan.settings, defaults=True), "source": {**facts, "digest": _digest(opened, division)}}
    kept = {"budget": budget, "steps": plan.settings.steps, "choices": [vars(choice) for choice in plan.choices]}
    trainer = Trainer(task, folder, plan.settings, callbacks=[_Written(found, kept)], fresh=fresh, document=document)
    _check_frozen(task, plan.settings)
    before = _features_before(task, sides) if plan.settings.baselines else None
    trainer.run(None if progress is None else progress(trainer))
    if trainer.main:
        if trainer.no_embedder is not None:
            raise ValueError(f"{folder} has no embedder: {trainer.no_embedder}")
        if plan.selects and plan.settings.last_layer == "auto":
            tell(str(_refine(folder, sides, kept)))
        report = _finish(folder, opened.part(division.measured), sides, plan.settings, facts, before)
        if write_page is not None:
            RunFolder(folder).record("report.html")
            write_page(folder)
    trainer.accelerator.wait_for_everyone()
    run = Run(folder, trust=True)  # the code that it names has just been running
    if trainer.main:
        run.report = report  # computed a moment ago
    return run


def _refine(folder: pathlib.Path, sides: Sides, kept: dict[str, Any]) -> Choice:
    """Choose the last layer of the embedder, and write what was chosen."""
    embedder, choice = choose_last_layer(Embedder.load(folder / EMBEDDER, trust=True), sides.train, sides.watched)
    embedder.save(folder / EMBEDDER)
    write_json(folder / CHOICES, {**kept, "choices": [*kept["choices"], vars(choice)]})
    return choice


class _Written(Callback):
    """Writes what was found and chosen into the folder once it is the run's own."""

    def __init__(self, found: dict[str, Any], kept: dict[str, Any]):
        self.files = {CHECK: found, CHOICES: kept}

    def on_start(self, trainer: Trainer) -> None:
        """The folder has been opened and locked."""
        if trainer.main:
            trainer.folder.record(*self.files)
            for name, content in self.files.items():
                write_json(trainer.folder.path / name, content)


def _check_frozen(task: Recognising, settings: FitSettings) -> None:
    """A frozen backbone must not keep parts that started at random because the weights did not fit them."""
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


def _checked(source: Source, folder: pathlib.Path, tell: Say) -> dict[str, Any]:
    """The check of the source as plain values, that of the run in the folder if nothing has changed since."""
    digest = _source_digest(source)
    try:
        stored = json.loads((folder / CHECK).read_text(encoding="utf-8"))
        if digest is not None and stored.get("digest") == digest:
            return dict(stored)
    except (OSError, ValueError, AttributeError):
        pass  # there is none yet, or it is no longer what was written: it is made now
    report = check(source)
    tell(str(report))
    return {**report.to_json(), "digest": digest}


def _readable(source: Source, found: dict[str, Any], settings: FitSettings) -> Source:
    bad = found["unreadable"]
    if not bad:
        return source
    name, reason = next(iter(bad.items()))
    reason = reason.partition(f"{name}: ")[2] or reason  # the reason names the file too, with its folder
    if settings.on_error == "raise":
        more = f", and {len(bad) - 1} other pictures" if len(bad) > 1 else ""
        raise DataError(
            f"{name} cannot be read{more}: {reason}; remove it, or leave such pictures out with on_error=skip"
        )
    kept = torch.tensor([i for i, record in enumerate(source.records) if record.name not in bad])
    return source.part(kept)


def _finish(
    folder: pathlib.Path,
    held_out: Source,
    sides: Sides,
    settings: FitSettings,
    facts: dict[str, Any],
    before: Tensor | None,
) -> OpenSetReport:
    """Everything that a fit leaves beside the training's own files, each written whole and recorded as the run's."""
    run = RunFolder(folder)
    run.record(HELD_OUT, REPORT)
    embedder = Embedder.load(folder / EMBEDDER, trust=True)
    features = embed_samples(embedder, sides.measured)
    trained = settings.validation == 0
    write_features(folder / HELD_OUT, features, held_out.labels, held_out.records, trained=trained)
    report = read_report(folder / HELD_OUT)
    simple = () if before is None else _measure_baselines(features, held_out, sides, before, settings)
    drawn = draw_report(report, sides.measured, held_out.records, folder / "pictures") if settings.pictures else []
    run.record(*(f"pictures/{name}" for name in drawn))
    write_json(folder / REPORT, describe_report(report, features, sides.measured, held_out.records, simple, **facts))
    return report


def _features_before(task: Recognising, sides: Sides) -> Tensor:
    """Features of measured samples by the network before it is trained, those of whole identities if there are many."""
    rows = first_identities(sides.measured.labels, MAX_PICTURES)
    training = task.training
    task.eval()
    with torch.no_grad(), torch.random.fork_rng():
        features = extract_features(
            task.embed_batch, lambda index: sides.measured.batch(rows[index])[0], len(rows), 256, group=all_processes()
        )
    task.train(training)
    return features


def _measure_baselines(
    features: Tensor, held_out: Source, sides: Sides, before: Tensor, settings: FitSettings
) -> tuple[Baseline, ...]:
    rows = first_identities(held_out.labels, MAX_PICTURES)
    known = first_identities(sides.train.labels, MAX_TRAINING_PICTURES)
    pictures, labels = sides.train.batch(known)
    named = (
        {"the network before training": before}
        if settings.weights is None
        else {f"{settings.weights} before training": before}
    )
    stored = sides.measured.batch(rows)[0]
    return measure_baselines(
        features[rows], held_out.part(rows), stored, train=(pictures, labels), others=named, seed=settings.seed
    )


def _check_room(folder: pathlib.Path) -> None:
    above = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not above.is_dir():
        raise ValueError(f"{above} is a file: choose another folder for the run")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ValueError(f"{above} cannot be written: choose another folder for the run")
    free = shutil.disk_usage(above).free
    if free < ROOM:
        raise ValueError(
            f"the disk of {above} is full: {free / 1e6:.0f} MB are free, {ROOM / 1e6:.0f} MB are needed for a run"
        )


def _source_digest(source: Source) -> str | None:
    try:
        return source.digest()
    except ValueError:  # it does not come from files, so nothing says whether it has changed
        return None


def _digest(source: Source, division: Division) -> str:
    """What pins a run to its data: the source's digest or its records, and who is trained on."""
    told = _source_digest(source) or repr(source.records)
    whole = f"{told}{division.train.tolist()}{division.measured.tolist()}"
    return hashlib.sha256(whole.encode()).hexdigest()


def _stem(name: str) -> str:
    return pathlib.Path(name).absolute().name.partition(".")[0] or "fit"
