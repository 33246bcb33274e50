"""``hypersphere train NAME key.path=value …``: run a recipe, resume one, or list its keys."""

import argparse
import contextlib
import os
import sys
from collections.abc import Collection, Iterator
from typing import Any

from .._extras import require
from .settings_file import add_settings_option, read_overrides


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the recipe, its settings, and the folder of a run to resume."""
    parser.add_argument("recipe", nargs="?", metavar="NAME", help="name of a recipe; `hypersphere recipes` lists them")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="settings to change, such as head=ArcFace head.m=0.4; --keys lists them",
    )
    sizes = ("smoke", "laptop", "paper")
    parser.add_argument("--size", choices=sizes, default="laptop", help="size of the experiment (default: %(default)s)")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="output folder (default: runs/NAME)")
    parser.add_argument(
        "--resume",
        metavar="FOLDER",
        help="continue the run in this folder; with --output, start a new run from its checkpoint",
    )
    add_settings_option(parser)
    parser.add_argument(
        "--trust", action="store_true", help="with --resume: allow the run to import and run your own Python code"
    )
    parser.add_argument("--fresh", action="store_true", help="delete the run in the output folder and start again")
    parser.add_argument(
        "--keys", action="store_true", help="list every setting with its value and the values it accepts, then exit"
    )


def run(args: argparse.Namespace) -> int:
    """Train to the end. After an interruption, print how to resume and return 130."""
    from ..training import Experiment

    args.overrides = read_overrides(args)
    changes = [word for word in (args.recipe, *args.overrides) if word] if args.resume is not None else []
    if args.resume is not None and (args.fresh or args.keys or (changes and args.output is None)):
        raise ValueError(
            "--resume continues a run with the same settings: --fresh and --keys are not accepted, and KEY=VALUE needs "
            "--output NEW, which starts a new run from the checkpoint"
        )
    if args.trust or any(":" in override for override in args.overrides):
        allow_current_folder()
    config = None if args.resume is not None else choose_recipe(args.recipe, args.size, args.overrides)
    is_fork = args.resume is not None and args.output is not None
    if args.keys:
        print("\n".join(list_keys(config)))
        return 0
    folder = args.output or (args.resume if config is None else _default_folder(config.name))
    try:
        if is_fork:
            experiment = Experiment.fork(args.resume, folder, changes, trust=args.trust)
        elif config is None:
            experiment = Experiment.resume(folder, trust=args.trust)
        else:
            experiment = Experiment(config, folder, fresh=args.fresh)
        with show_progress(experiment, args.quiet) as progress:
            metrics = experiment.run(progress)
    except KeyboardInterrupt as stop:
        if is_main_process():
            print(f"\n{str(stop) or 'stopped before anything was saved'}: hypersphere train --resume {folder}")
        return 130
    except ConnectionError as lost:
        raise ConnectionError(f"{lost}: hypersphere train --resume {folder}") from lost
    if experiment.main:
        print_metrics(metrics, experiment.step, folder)
        print(write_report_page(folder))
    experiment.accelerator.end_training()
    return 0


def _default_folder(name: str) -> str:
    """Return ``runs/NAME``; raise a ``ValueError`` if ``name`` is not the name of a single folder."""
    if (
        name in ("", ".", "..")
        or "\0" in name
        or any(separator and separator in name for separator in (os.sep, os.altsep))
    ):
        raise ValueError(
            f"name must be the name of a folder inside runs, without {os.sep}, got {name!r}; or give --output"
        )
    return os.path.join("runs", name)


def choose_recipe(name: str | None, size: Any, overrides: list[str]) -> Any:
    """Return the settings of a recipe with changes; a wrong key or value raises ``ValueError`` with a suggestion."""
    from .. import recipes
    from ..config import as_call, assign

    if name is None:
        raise ValueError(
            "NAME of a recipe is missing: give a name that `hypersphere recipes` lists, such as mhe-cifar10"
        )
    return assign(as_call(recipes.get(name).config(size)), overrides).build()


def allow_current_folder() -> None:
    """Append the current folder to the import path, to find your own code (``package.module:name``)."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def list_keys(config: Any, chosen: Collection[str] = (), given: Collection[str] = ()) -> Iterator[str]:
    """Yield one line per key: its value, the accepted values and its meaning.

    Args:
        config: The settings, or their constructor call.
        chosen: Keys that are chosen from the data, with all their arguments. Their defaults are not printed.
        given: Keys among them that the user set.
    """
    from ..config import as_call, keys

    for key in keys(as_call(config)):
        is_chosen = key.path.partition(".")[0] in chosen and key.path not in given
        text = f"{key.path}={'(chosen from the data)' if is_chosen else key.value}"
        yield f"{text:<44} {key.accepted}{': ' + key.help if key.help else ''}"


def is_main_process() -> bool:
    """Return whether this process has rank 0, the only rank that prints."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def show_progress(trainer: Any, quiet: bool = False) -> Iterator[Any]:
    """Show a progress bar with the step, the loss and the last metric, on rank 0 only."""
    progress = require("rich.progress")
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[loss]} {task.fields[measure]}"),
    )
    settings = trainer.settings
    name = settings.monitor.lstrip("-")
    with progress.Progress(*columns, disable=quiet or not trainer.main) as bars:
        label = getattr(settings, "name", "run")
        task = bars.add_task(label, total=settings.steps, completed=trainer.step, loss="", measure="")

        def update(step: int, row: dict[str, Any]) -> None:
            fields = {"loss": f"loss {row['loss']:.4g}"} if "loss" in row else {"measure": f"{name} {row[name]:.4g}"}
            bars.update(task, completed=step, **fields)

        yield update


def write_report_page(folder: str) -> str:
    """Write the report page of a run. Return a line with its path, or with the reason why it was not written."""
    from ..report.pages import FILE, write_page
    from ..training.run_folder import RunFolder

    RunFolder(folder).record(FILE)
    try:
        return f"Report page: {write_page(folder)}"
    except (ImportError, ValueError) as error:  # the run itself is complete
        return f"No report page: {error}"


def print_metrics(metrics: dict[str, float], steps: int, folder: str) -> None:
    """Print the final metrics with their units, and the folder."""
    from ..training.results import format_measure

    table = require("rich.table").Table(title=f"after {steps} steps")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for key, value in metrics.items():
        if not key.startswith("energy/"):
            table.add_row(key, format_measure(key, value))
    console = require("rich.console").Console()
    console.print(table)
    console.print(f"Log, checkpoints, pictures and model card: {folder}", highlight=False, soft_wrap=True)
