"""``hypersphere fit SOURCE -o RUN key=value …``: train an embedder on pictures sorted by identity."""

import argparse
import contextlib
import json
import pathlib
import shlex
import time
from collections.abc import Iterator
from typing import Any

from .._extras import require
from .embedder_options import add_license_option
from .settings_file import add_settings_option, read_overrides
from .source_options import SOURCE_HELP, add_source_options, read_source_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the source, the output folder and the settings."""
    parser.add_argument("source", nargs="?", metavar="SOURCE", help=SOURCE_HELP)
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="settings to change, such as size=48 head=ArcFace; --keys lists them",
    )
    parser.add_argument(
        "-o", "--output", metavar="RUN", help="output folder (default: the name of the source inside runs/)"
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="NAME",
        help="start from a pretrained model such as sface, ge2e or efficientnet-lite0 (see `hypersphere models`), a run "
        "folder or an embedder file",
    )
    add_license_option(parser)
    add_settings_option(parser)
    parser.add_argument(
        "--budget", metavar="TIME", help="training time, such as 10m, from which the number of steps is chosen"
    )
    parser.add_argument("--fresh", action="store_true", help="delete the run in the output folder and start again")
    parser.add_argument("--json", action="store_true", help="print only the report, as JSON")
    add_source_options(parser, "split")
    parser.add_argument("--keys", action="store_true", help="list every setting and the values it accepts, then exit")


def run(args: argparse.Namespace) -> int:
    """Train to the end. Return 130 after an interruption; the same command resumes the run."""
    from ..evaluation import format_baselines, summarize_baselines
    from ..evaluation.figures import describe_intervals
    from ..training import FitSettings, fit
    from ..training.fitting.settings import Overrides
    from .train import is_main_process, list_keys

    args.overrides = read_overrides(args)
    if args.keys:
        settings = [args.source] if args.source and "=" in args.source else []  # --keys needs no source
        given = Overrides([*settings, *args.overrides])
        chosen = FitSettings.CHOSEN - given.given
        print("\n".join(list_keys(given.apply_to_defaults(), chosen, given.changes)))
        return 0
    if args.source is None:
        raise ValueError(
            "SOURCE is missing: give a folder with one sub-folder per identity, a table, tar shards or an .npz"
        )
    quiet = args.json or not is_main_process()
    console = require("rich.console").Console(quiet=quiet or args.quiet, soft_wrap=True, highlight=False, markup=False)
    try:
        with contextlib.ExitStack() as stack:
            done = fit(
                args.source,
                args.output,
                settings=_list_settings(args),
                budget=args.budget,
                fresh=args.fresh,
                progress=lambda trainer: stack.enter_context(show_progress(trainer, console)),
                say=console.print,
                write_page=lambda folder: _write_page(args, folder),
            )
    except KeyboardInterrupt as stop:
        console.print(
            f"\n{str(stop) or 'stopped; all saved checkpoints are kept'}; type the same command again to resume"
        )
        return 130
    console.quiet = quiet
    if args.json and is_main_process():
        print(json.dumps(json.loads((done.folder / "report.json").read_text(encoding="utf-8")), ensure_ascii=False))
    if done.baselines:
        console.print(summarize_baselines(done.baselines))
    console.print(str(done.report))
    console.print(describe_intervals(done.report.figures()))
    for line in format_baselines(done.baselines):
        console.print(line)
    console.print(f"embedder, report, pictures and choices: {done.folder}")
    page = done.folder / "report.html"
    if page.is_file():
        console.print(f"report page, to open in a browser: {page}")
    return 0


def _list_settings(args: argparse.Namespace) -> list[str]:
    """Return the settings of the command line: overrides, and options that are settings."""
    options = {"start": getattr(args, "start", None), "accept_licence": getattr(args, "accept_licence", None)}
    given = {name: value for name, value in options.items() if value is not None} | read_source_options(args)
    return [*args.overrides, *(f"{name}={value}" for name, value in given.items())]


def repeat_command(args: argparse.Namespace, folder: pathlib.Path) -> str:
    """Return the command line that repeats a fit in a new folder.

    >>> args = argparse.Namespace(source="my people", overrides=["size=48"], budget=None)
    >>> repeat_command(args, pathlib.Path("runs/people"))
    "hypersphere fit 'my people' size=48 -o runs/people-again"
    """
    budget = [] if args.budget is None else ["--budget", args.budget]
    return shlex.join(["hypersphere", "fit", args.source, *_list_settings(args), *budget, "-o", f"{folder}-again"])


def _write_page(args: argparse.Namespace, folder: pathlib.Path) -> None:
    """Write ``command.txt`` with the command that repeats the fit, then the report page, which shows this command."""
    from ..files import write_text
    from ..report import write_page
    from ..training.run_folder import RunFolder

    RunFolder(folder).record("command.txt")
    write_text(folder / "command.txt", repeat_command(args, folder) + "\n")
    write_page(folder)


@contextlib.contextmanager
def show_progress(trainer: Any, console: Any) -> Iterator[Any]:
    """Show a progress bar with samples per second, the time left, the loss and the last metrics of unseen identities.

    If the output is not a terminal, print one line per evaluation with the mean speed instead.
    """
    from ..training.fitting._fit import format_measures

    progress = require("rich.progress")
    columns = (
        progress.TextColumn("fit"),
        progress.BarColumn(bar_width=20),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[speed]} {task.fields[loss]} {task.fields[measure]}"),
    )
    settings = trainer.settings
    clock: dict[str, float] = {}
    with progress.Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task("fit", total=settings.steps, speed="", loss="", measure="")

        def update(step: int, row: dict[str, Any]) -> None:
            now = time.monotonic()
            fields: dict[str, str] = {}
            if step > clock.get("step", step):
                speed = (step - clock["step"]) * settings.batch_size / max(now - clock["time"], 1e-9)
                fields["speed"] = f"{speed:.0f} samples/s"
            clock.update(time=now, step=step)
            done, spent = step - clock.setdefault("first_step", step), now - clock.setdefault("start", now)
            if "loss" in row:
                fields["loss"] = f"loss {row['loss']:.3g}"
            if "eer" in row:
                fields["measure"] = format_measures(row, settings)
                if not console.is_terminal:
                    pace = format_pace(done * settings.batch_size, (settings.steps - step) * settings.batch_size, spent)
                    console.print(f"step {step} of {settings.steps}{pace}: {fields['measure']}")
            bars.update(task, completed=step, **fields)

        yield update


def format_pace(done: float, left: float, seconds: float) -> str:
    """Return the speed and the time left as text; empty at the start.

    Args:
        done: Number of processed samples.
        left: Number of samples left.
        seconds: Time that the processed samples took.

    >>> format_pace(1000, 3000, 20.0), format_pace(0, 3000, 0.0)
    (', 50 samples/s, 60 s left', '')
    """
    if done <= 0 or seconds <= 0:
        return ""
    return f", {done / seconds:.0f} samples/s, {left * seconds / done:.0f} s left"
