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

from ...config import encode
from ...data import DataError, Source, check, open_source
from ...files import write_json
from ..callbacks import Callback, Progress
from ..run_folder import RunFolder
from ..trainer import Trainer
from .backbones import weights_of
from .building import build
from .division import Division, divide
from .finished_run import CHECK, CHOICES, EMBEDDER, HELD_OUT, REPORT, Run
from .fit_settings import FitSettings
from .fit_sides import Sides, samples
from .planning import seconds
from .plans import Plan, make_plan, planned_steps, with_steps
from .recognising import Recognising
from .unseen_report import draw_report, embed_samples, read_report, write_features, write_page_of, write_report
from .wishes import wanted, wishes

Say = Callable[[str], None]
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
    plan = make_plan(opened, found, division, asked)
    sides = _samples(opened, division, plan)
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
    trainer.run(None if progress is None else progress(trainer))
    if trainer.main:
        _finish(folder, opened.part(division.measured), sides, plan.settings.pictures)
    trainer.accelerator.wait_for_everyone()
    return Run(folder)


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


def _samples(source: Source, division: Division, plan: Plan) -> Sides:
    settings = plan.settings
    return samples(
        source,
        division,
        plan.preprocessing,
        memory=bool(settings.memory),
        cache=settings.cache,
        workers=settings.workers or 0,
        watched=settings.watched,
    )


def _finish(folder: pathlib.Path, held_out: Source, sides: Sides, pictures: bool) -> None:
    """Everything that a fit leaves beside the training's own files, each written whole and recorded as the run's."""
    if not (folder / EMBEDDER).is_file():
        reason = (folder / "README.md").read_text(encoding="utf-8").partition("There is no embedder: ")[2]
        raise ValueError(f"{folder} has no embedder: {reason.splitlines()[0] if reason else 'it could not be written'}")
    run = RunFolder(folder)
    run.record(HELD_OUT, REPORT)
    embedder = Run.embedder_in(folder)
    features = embed_samples(embedder, sides.measured)
    write_features(folder / HELD_OUT, features, held_out.labels, held_out.records)
    report = read_report(folder / HELD_OUT)
    drawn = draw_report(report, sides.measured, held_out.records, folder / "pictures") if pictures else []
    run.record(*(f"pictures/{name}" for name in drawn))
    write_report(report, held_out.records, folder / REPORT)
    page = write_page_of(folder)
    if page is not None:
        run.record(page)


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
