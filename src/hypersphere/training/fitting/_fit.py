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
from ...data import DataError, Source, check, open_source
from ...data.sources.source import SKIP_ADVICE, list_missing, list_skipped
from ...evaluation import format_baselines, summarize_baselines
from ...files import read_json, write_json
from ...models import Projected
from ...recognition import Embedder, all_processes, extract_features, load
from ...recognition.baselines import MAX_PICTURES, first_identities
from ..build import TaskData, assemble_task
from ..datasets import Samples, WindowSamples, embed_with, read_samples
from ..processes import seed_generators
from ..run_folder import RunFolder
from ..tasks import Recognition
from ..trainer import Callback, Progress, Trainer
from .backbones import has_folder_weights, load_folder_weights
from .budget import fit_plan_to_budget, parse_seconds
from .choices import Choice
from .ensemble import join_descriptors, join_networks, join_voice_descriptors
from .last_layer import choose_last_layer
from .plan import Plan, add_selection_to_training, choose_preprocessing, make_plan
from .run import CHECK, CHOICES, EMBEDDER, Run, write_report
from .settings import FitSettings, Overrides
from .splits import Division, PreparedSource, divide, prepare_source, separate_selection
from .tuning import imprint_head, tune_network

Say = Callable[[str], None]
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
    network, head, steps. Each choice has a reason, which is printed and kept in :attr:`Run.choices`. If a run was stopped,
    another call with the same arguments continues it, with the same result as without the stop.

    Args:
        source: A folder with one sub-folder per identity, a table, tar shards, an ``.npz``, a saved dataset, a pair of
            arrays or a torch dataset: whatever :func:`~hypersphere.data.open_source` accepts.
        out: Folder of the run. The default is ``runs/`` and the source's name.
        settings: Settings by dotted key, with the keys of the command line, such as ``{"head.m": 0.3}``; or texts
            ``"head.m=0.3"``. :class:`FitSettings` lists them. An override of one argument keeps the automatic choice of
            the others.
        budget: A time such as ``"10m"``. The number of steps is planned by measuring the first ones.
        fresh: Delete a run in the folder and start over.
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
    start_time = time.monotonic()
    budget_seconds = None if budget is None else parse_seconds(budget)
    to_stdout = say is None and not quiet and os.environ.get("RANK", "0") == "0"
    tell: Say = (lambda line: None) if quiet else (say or _print)
    overrides = Overrides(settings, **more)
    user_settings: FitSettings = overrides.apply_to_defaults().build()

    # Read the data.
    on_error = user_settings.on_error
    opened = open_source(source, **user_settings.source_options, skip_missing=on_error == "skip")
    folder = pathlib.Path(out) if out is not None else pathlib.Path("runs") / _derive_name(opened.name)
    _check_disk(folder)
    checked = _check_source(opened, folder, tell)
    opened = _drop_unreadable(opened, checked, on_error, tell)
    start = None
    if user_settings.start is not None:
        start = load(user_settings.start, accept_licence=user_settings.accept_licence)
    prepared = _prepare_samples(opened, checked, overrides, start, on_error, tell)
    usable = opened if prepared is None else prepared.source

    # Choose identities and settings.
    division = divide(usable, user_settings.validation, user_settings.least_images)
    division = separate_selection(usable, division, user_settings.selection)
    plan = make_plan(usable, checked, division, overrides, start=start, prepared=prepared)
    task = _build_task(plan, overrides.model_folder)
    if budget_seconds is not None and plan.settings.steps:
        seconds_left = budget_seconds - (time.monotonic() - start_time)
        plan = fit_plan_to_budget(plan, task, overrides, None if fresh else folder, budget, seconds_left)
    for choice in plan.choices:
        tell(str(choice))

    # Train.
    digest = _compute_digest(usable, division)
    files = _WriteFiles({CHECK: checked, CHOICES: _describe_choices(plan, budget)})
    document = _describe_run(plan, digest)
    trainer = Trainer(task, folder, plan.settings, callbacks=[files], fresh=fresh, document=document)
    _check_frozen(task, plan.settings)
    features_before = _embed_with_task(task, plan.splits.measured) if plan.settings.baselines else None
    create_progress = _create_printer if to_stdout and progress is None else progress
    trainer.run(None if create_progress is None else create_progress(trainer))
    if trainer.main and trainer.no_embedder is not None:
        raise ValueError(f"{folder} has no embedder: {trainer.no_embedder}")
    network_folders: list[pathlib.Path] = []
    if plan.has_selection and (plan.settings.networks or 1) > 1 and trainer.measured["step"] == 0:
        reason = "no other networks are trained, because the EER of the selection identities was lowest before training"
        plan = _replace_choice(plan, Choice("networks", "1", reason))
        tell(reason)
    else:
        network_folders = _train_other_networks(plan, folder, digest, overrides.model_folder, fresh, tell)

    # Refine the embedder in closed form, and measure it.
    if trainer.main:
        choices = _refine_run(folder, plan, network_folders)
        for choice in choices:
            tell(str(choice))
        write_json(folder / CHOICES, _describe_choices(plan, budget, choices))
        report = write_report(folder, plan, _describe_training_set(plan), features_before)
        if write_page is not None:
            RunFolder(folder).record("report.html")
            write_page(folder)
    trainer.accelerator.wait_for_everyone()
    run = Run(folder, trust=True)  # its code was just executed, so importing it adds no risk
    if trainer.main:
        run.report = report  # so that it is not computed again from the file
        if to_stdout:
            _print_report(run)
    return run


def refine_embedder(
    embedders: Sequence[Embedder], train: Samples, selection: Samples | None, *, pretrained: bool = False
) -> tuple[Embedder, list[Choice]]:
    """Return an embedder with the last layer and the descriptors that the selection identities choose, and the choices.

    Args:
        embedders: The trained embedders, with the same preprocessing. All but the first were also trained on the selection
            identities, so they have no part in the choices. Their features are joined to those of the first.
        train: Samples of the training identities, as the preprocessing stores them.
        selection: Samples of other identities, which are not those of the report; None if there are too few.
        pretrained: Whether the network started from pretrained weights, which descriptors of pictures rarely improve.
    """
    if pretrained and len(embedders) > 1:
        return join_networks(embedders, train), []
    first, choices = embedders[0], []
    if selection is not None and len(embedders) == 1:
        first, choice = choose_last_layer(first, train, selection, pretrained=pretrained)
        choices.append(choice)
    elif pretrained:
        reason = (
            "there are too few identities to tell whether a linear discriminant helps, "
            "so the pretrained features are not changed"
        )
        choices.append(Choice("last_layer", "none", reason))
    if not pretrained:
        first, choice = join_descriptors([first, *embedders[1:]], train, selection)
        choices.append(choice)
    elif isinstance(train, WindowSamples):
        first, choice = join_voice_descriptors(first, [train] if selection is None else [train, selection])
        choices.append(choice)
    return first, choices


def format_measures(row: Mapping[str, Any], settings: Any) -> str:
    """Return EER, TAR and rank-1 of a row of the log as one line.

    >>> format_measures({"step": 3, "eer": 4.25, "tar@0.001": 61.0, "rank1": 80.5}, FitSettings())
    'unseen identities: EER 4.25 %, TAR at FAR 0.001 61 %, rank-1 80.5 %'
    """
    names = {"eer": "EER"}
    names |= {key: f"TAR at FAR {key.partition('@')[2]}" for key in row if key.startswith("tar@")}
    names |= {"rank1": "rank-1"}
    identities = "trained identities: " if settings.validation == 0 else "unseen identities: "
    return identities + ", ".join(f"{text} {row[key]:.3g} %" for key, text in names.items() if key in row)


def _check_disk(folder: pathlib.Path) -> None:
    """Raise if the folder cannot be written or its disk is full."""
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise ValueError(f"{existing} is a file: choose another folder for the run")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"{existing} cannot be written: choose another folder for the run")
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE_BYTES:
        raise ValueError(
            f"the disk of {existing} is full: {free / 1e6:.0f} MB are free, {MIN_FREE_BYTES / 1e6:.0f} MB are needed for a run"
        )


def _check_source(source: Source, folder: pathlib.Path, tell: Say) -> dict[str, Any]:
    """Return the check of the source as plain values, from the run folder if the source has not changed."""
    digest = _compute_source_digest(source)
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


def _drop_unreadable(source: Source, checked: dict[str, Any], on_error: str, tell: Say) -> Source:
    """Return the source without samples that cannot be read or are missing; refuse them unless they are to be skipped."""
    unreadable = {**checked["unreadable"], **list_missing(source)}
    if not unreadable:
        return source
    name, reason = next(iter(unreadable.items()))
    reason = reason.partition(f"{name}: ")[2] or reason  # the reason names the file too, with its folder
    if on_error == "raise":
        others = f", and {len(unreadable) - 1} other pictures" if len(unreadable) > 1 else ""
        raise DataError(f"{name} cannot be read{others}: {reason}; {SKIP_ADVICE}")
    for line in list_skipped(unreadable):
        tell(line)
    readable = [i for i, record in enumerate(source.records) if record.name not in unreadable]
    return source.part(torch.tensor(readable))


def _prepare_samples(
    source: Source, checked: dict[str, Any], overrides: Overrides, start: Embedder | None, on_error: str, tell: Say
) -> PreparedSource | None:
    """Prepare the usable samples of the source; return None for pictures that are only cropped and resized."""
    preprocessing, reason = choose_preprocessing(checked, overrides, start)
    if preprocessing is None:
        return None
    prepared = prepare_source(source, preprocessing, on_error)
    for line in list_skipped(prepared.unusable):
        tell(line)
    return prepared._replace(reason=reason)


def _build_task(plan: Plan, model_folder: str | None) -> Recognition:
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
            "facts": _describe_training_set(plan),
        },
        classes=len(splits.train.classes),
        sizes={} if plan.start is not None else _describe_input(sample),
        preprocessing=preprocessing,
        sample=sample,
    )
    load_weights: Callable[[nn.Module], None] | None = None
    project = True if settings.project is None and settings.frozen else settings.project
    size: int | None = settings.feature_dim
    if plan.start is not None:
        size = settings.feature_dim if settings.project else None
        project = bool(settings.project)
        pretrained = plan.start.network.state_dict()
        load_weights = lambda body: _copy_weights(body, pretrained)  # noqa: E731
    elif model_folder is not None and has_folder_weights(model_folder):
        load_weights = lambda body: load_folder_weights(body, model_folder)  # noqa: E731
    task = cast(
        Recognition,
        assemble_task(settings, call(Recognition), data, feature_size=size, project=project, load=load_weights),
    )
    if plan.start is not None:
        tune_network(task, cast(str, settings.tune))
        if settings.steps:
            imprint_head(task, splits.train_inputs)
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


def _copy_weights(body: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a network, or into the network in front of a projection."""
    network = getattr(body, "network", body) if isinstance(body, Projected) else body
    network.load_state_dict(weights)


def _describe_choices(plan: Plan, budget: str | float | None, more: Sequence[Choice] = ()) -> dict[str, Any]:
    """Return the content of ``choices.json``."""
    choices = [vars(choice) for choice in (*plan.choices, *more)]
    return {
        "budget": budget,
        "steps": plan.settings.steps,
        "networks": plan.settings.networks or 1,
        "choices": choices,
    }


def _replace_choice(plan: Plan, choice: Choice) -> Plan:
    """Return the plan with another value and reason for one choice."""
    choices = tuple(choice if old.key == choice.key else old for old in plan.choices)
    return dataclasses.replace(plan, choices=choices)


def _describe_training_set(plan: Plan) -> dict[str, Any]:
    """Return facts about the training set for the embedder's card and the report."""
    return {
        "source": plan.source.name,
        "images": len(plan.division.train),
        "identities": len(plan.splits.train.classes),
    }


def _describe_run(plan: Plan, digest: str) -> dict[str, Any]:
    """Return the document of a run: its settings and its data, which must not change when it is continued."""
    return {
        "fit": encode(plan.settings, defaults=True),
        "source": {**_describe_training_set(plan), "digest": digest},
    }


class _WriteFiles(Callback):
    """Write JSON files into the folder of the run once it is locked."""

    def __init__(self, files: Mapping[str, Any]):
        self.files = files

    def on_start(self, trainer: Trainer) -> None:
        """Write the files, after the folder was opened and locked."""
        if trainer.main:
            trainer.folder.record(*self.files)
            for name, content in self.files.items():
                write_json(trainer.folder.path / name, content)


def _check_frozen(task: Recognition, settings: FitSettings) -> None:
    """Raise if a frozen backbone would keep randomly initialized parts that the weights do not contain."""
    if not settings.frozen or settings.weights is None:
        return
    frozen = {id(parameter) for parameter in task.backbone.parameters()}
    names = {name for name, parameter in task.model.named_parameters() if id(parameter) in frozen}
    random = [name for name in (*task.started["missing"], *task.started["misshapen"]) if name in names]
    if random:
        raise ValueError(
            f"frozen=true would keep {len(random)} parts of the backbone at their random initialization, such as {random[0]}, "
            f"because {settings.weights} does not fit them: set backbone= and feature_dim= as the weights were trained"
        )


def _embed_with_task(task: Recognition, samples: Samples) -> Tensor:
    """Return features of samples by the network in its current state, with all samples of an identity or none."""
    rows = first_identities(samples.labels, MAX_PICTURES)
    training = task.training
    task.eval()
    with torch.no_grad(), torch.random.fork_rng():
        features = extract_features(
            embed_with(task.embed_batch, samples),
            lambda index: read_samples(samples, rows[index]),
            len(rows),
            64,
            group=all_processes(),
        )
    task.train(training)
    return features


def _train_other_networks(
    plan: Plan, folder: pathlib.Path, digest: str, model_folder: str | None, fresh: bool, tell: Say
) -> list[pathlib.Path]:
    """Train the second and all later networks, each in a folder inside that of the run, and return these folders.

    They are trained on the selection identities, too. No identities are left to select their weights, so they keep the last
    ones.
    """
    count = plan.settings.networks or 1
    if count > 1 and plan.has_selection:
        plan = add_selection_to_training(plan)
    folders = []
    for i in range(1, count):
        tell(f"network {i + 1} of {count} is trained on {len(plan.splits.train.classes)} identities")
        settings = plan.settings.replace(
            seed=plan.settings.seed + i,
            keep_best=False,
            patience=None,
            pictures=False,
            evaluate_every=max(plan.settings.steps, 1),
        )
        network_plan = dataclasses.replace(plan, settings=settings)
        task = _build_task(network_plan, model_folder)
        folders.append(folder / NETWORKS / str(i + 1))
        Trainer(task, folders[-1], settings, fresh=fresh, document=_describe_run(network_plan, digest)).run()
    return folders


def _refine_run(folder: pathlib.Path, plan: Plan, network_folders: Sequence[pathlib.Path]) -> list[Choice]:
    """Join the networks of a run and choose last layer and descriptors; write the embedder and return the choices."""
    paths = [path / EMBEDDER for path in (folder, *network_folders)]
    embedders = [Embedder.load(path, trust=True) for path in paths]
    train = plan.splits.train_inputs
    if plan.settings.last_layer == "none":
        if len(embedders) > 1:
            join_networks(embedders, train).save(folder / EMBEDDER)
        return []
    selection = plan.splits.watched if plan.has_selection else None
    pretrained = plan.settings.weights is not None or plan.start is not None
    embedder, choices = refine_embedder(embedders, train, selection, pretrained=pretrained)
    embedder.save(folder / EMBEDDER)
    return choices


def _print(line: str) -> None:
    print(line, flush=True)


def _create_printer(trainer: Trainer) -> Progress:
    """Return a function that prints a line for every evaluation."""

    def print_measures(step: int, row: dict[str, Any]) -> None:
        if "eer" in row:
            _print(f"step {step} of {trainer.settings.steps}: {format_measures(row, trainer.settings)}")

    return print_measures


def _print_report(run: Run) -> None:
    if run.baselines:
        _print(summarize_baselines(run.baselines))
    _print(str(run.report))
    for line in format_baselines(run.baselines):
        _print(line)
    _print(f"embedder, report, pictures and choices: {run.folder}")


def _compute_source_digest(source: Source) -> str | None:
    try:
        return source.digest()
    except ValueError:  # the source has no files, so changes cannot be detected
        return None


def _compute_digest(source: Source, division: Division) -> str:
    """Return a digest of the source or of its records, and of the division into splits, which pins a run to its data."""
    content = _compute_source_digest(source) or repr(source.records)
    text = f"{content}{division.train.tolist()}{division.measured.tolist()}"
    return hashlib.sha256(text.encode()).hexdigest()


def _derive_name(name: str) -> str:
    """Return a name for the folder of a run from the name of a source."""
    return pathlib.Path(name).absolute().name.partition(".")[0] or "fit"
