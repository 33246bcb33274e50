"""``hypersphere train NAME key.path=value …``: run a recipe, resume one, or list its knobs."""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any

from .._extras import require


def configure(parser: argparse.ArgumentParser) -> None:
    """A recipe and what to change of it, or a folder to go on with."""
    parser.add_argument("recipe", nargs="?", metavar="NAME", help="a name that `hypersphere recipes` lists")
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="knobs to change, e.g. optimizer.lr=0.05 (see --keys)"
    )
    parser.add_argument(
        "--size", choices=("smoke", "laptop", "paper"), default="laptop", help="preset of the recipe (%(default)s)"
    )
    parser.add_argument("-o", "--output", metavar="FOLDER", help="where the run is kept (runs/NAME)")
    parser.add_argument("--resume", metavar="FOLDER", help="go on with the run in a folder, with its own settings")
    parser.add_argument("--fresh", action="store_true", help="forget a run that the folder holds")
    parser.add_argument("--keys", action="store_true", help="show every key of the recipe with its value, and stop")


def run(args: argparse.Namespace) -> int:
    """Train to the end; 130 when interrupted, with the line that goes on."""
    from ..experiments import Experiment

    if args.resume is not None:
        if args.recipe or args.output or args.fresh or args.keys:
            raise ValueError(
                "--resume goes on with a run as it is: no recipe, KEY=VALUE, --output, --fresh or --keys beside it"
            )
        folder, config = args.resume, None
    else:
        config = chosen(args.recipe, args.size, args.overrides, args.keys)
        folder = args.output or os.path.join("runs", config.name)
    try:
        experiment = Experiment.resume(folder) if config is None else Experiment(config, folder, fresh=args.fresh)
        with bar(experiment) as progress:
            metrics = experiment.run(progress)
    except KeyboardInterrupt as stop:
        if main_process():
            print(f"\n{str(stop) or 'stopped before anything was saved'}: hypersphere train --resume {folder}")
        return 130
    if experiment.main:
        report(metrics, experiment.config.steps, folder)
    experiment.accelerator.end_training()
    return 0


def chosen(name: str | None, size: Any, overrides: list[str], keys: bool = False) -> Any:
    """The recipe's config with ``key.path=value`` changed; a wrong key or value ends the program with status 2 and a suggestion."""
    from ..experiments import Config, recipes

    if name is None:
        raise ValueError(f"which recipe? There are {', '.join(sorted(recipes.RECIPES))}")
    config = recipes.get(name).config(size)
    tyro = require("tyro")
    wrong = [override for override in overrides if not override.partition("=")[1]]
    if wrong:
        raise ValueError(f"knobs are changed by KEY=VALUE, got {wrong[0]!r}")
    arguments = ["--help"] if keys else [part for override in overrides for part in _as_option(override)]
    program, said = f"hypersphere train {name}", io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(Config, default=config, args=arguments, prog=program, config=(tyro.conf.FlagConversionOff,))
    except SystemExit:
        if main_process():  # what --help is to tyro is --keys here
            print(said.getvalue().replace(f"{program} --help", f"{program} --keys"), file=sys.stderr, end="")
        raise


def _as_option(override: str) -> list[str]:
    """``a.b=c`` as ``--a.b=c``, and ``a.b=c,d`` as ``--a.b c d``: a value with commas is a list."""
    key, _, value = override.partition("=")
    if value and "," not in value:
        return [f"--{key}={value}"]
    return [f"--{key}", *(part for part in value.split(",") if part)]


def main_process() -> bool:
    """Whether this process is the one of several that speaks."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def bar(experiment: Any) -> Iterator[Any]:
    """A progress bar with the step, the loss and the last measure; other processes than the first show nothing."""
    progress = require("rich.progress")
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[loss]} {task.fields[measure]}"),
    )
    config = experiment.config
    name = config.monitor.lstrip("-")
    with progress.Progress(*columns, disable=not experiment.main) as bars:
        task = bars.add_task(config.name, total=config.steps, completed=experiment.step, loss="", measure="")

        def update(step: int, row: dict[str, Any]) -> None:
            shown = {"loss": f"loss {row['loss']:.4g}"} if "loss" in row else {"measure": f"{name} {row[name]:.4g}"}
            bars.update(task, completed=step, **shown)

        yield update


def report(metrics: dict[str, float], steps: int, folder: str) -> None:
    """The last measures as a table, and where everything is."""
    table = require("rich.table").Table(title=f"after {steps} steps")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for key, value in metrics.items():
        if not key.startswith("energy/"):
            table.add_row(key, f"{value:.4f}")
    console = require("rich.console").Console()
    console.print(table)
    console.print(f"Log, checkpoints, pictures and model card: {folder}", highlight=False, soft_wrap=True)
