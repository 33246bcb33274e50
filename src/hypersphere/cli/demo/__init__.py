"""``hypersphere demo``: recognize letters of unseen alphabets, compare four heads, write a report page."""

import argparse
from typing import Any

from ..._extras import require


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the output folder, the training time and the seed."""
    parser.add_argument(
        "-o", "--output", default="runs/demo", metavar="FOLDER", help="output folder (default: %(default)s)"
    )
    parser.add_argument(
        "--epochs",
        type=int,
        default=8,
        metavar="N",
        help="epochs of the comparison of heads on digits (default: %(default)s)",
    )
    parser.add_argument(
        "--steps", type=int, metavar="N", help="training steps of the embedder for letters (default: 250)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Print every step with its command and its result. The last line contains the path of the report page."""
    from . import demo_page, four_heads
    from .demonstration import demonstrate

    console = require("rich.console").Console(highlight=False, markup=False, soft_wrap=True)
    say = console.print

    def print_table(columns: Any, rows: Any) -> None:
        table = require("rich.table").Table(box=require("rich.box").SIMPLE)
        for i, column in enumerate(columns):
            table.add_column(column, justify="left" if i == 0 else "right")
        for row in rows:
            table.add_row(*row)
        console.print(table, soft_wrap=False)

    def report_fit(done: Any) -> None:
        report = done.report
        letters, pictures = report.labels.unique().numel(), len(report.labels)
        say(f"   {pictures} pictures of {letters} Georgian and Armenian letters, none of them seen in training:")
        say(f"   rank-1 {_format_percent(report.rank(1))}: the most similar other picture shows the same letter")
        say(
            f"   EER {_format_percent(report.eer)}: error rate of pairs at the threshold where both kinds of error are equal"
        )
        for baseline in done.baselines[:3]:
            say(f"   EER {100 * baseline.eer:.1f} % with {baseline.name}, for comparison")

    def report_gallery(answers: Any, calibration: Any) -> None:
        say("\n3. Enroll the Georgian letters, choose a threshold with some Armenian letters, identify new pictures")
        for line in demo_page.list_commands(args.output)[1:]:
            say(f"   {line}")
        print_table(demo_page.ANSWER_COLUMNS, [demo_page.format_answers(group) for group in answers])
        say(
            f"   The threshold, a cosine of {calibration.threshold:.3f}, was chosen with {calibration.people} other letters."
        )
        say(f"   Picture: {args.output}/letters.png")
        say("\n4. Compare four heads on handwritten digits, features in three dimensions")

    say(f"1. Render letters from the fonts of matplotlib: {args.output}/letters.npz")
    say("   Latin, Greek and Cyrillic to train on, Georgian and Armenian to recognize")
    say("\n2. Train an embedder and measure it on letters that were not in the training set")
    say(f"   {demo_page.list_commands(args.output)[0]}")
    with require("rich.progress").Progress(console=console, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def progress(name: str, epoch: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(f"   {name:>10}", total=args.epochs)
            bars.update(tasks[name], completed=epoch)

        done = demonstrate(
            args.output,
            epochs=args.epochs,
            steps=args.steps,
            seed=args.seed,
            progress=progress,
            report_fit=report_fit,
            report_gallery=report_gallery,
        )
    print_table(["head", *four_heads.COLUMNS.values()], [demo_page.format_head(head) for head in done.heads])
    say(f"   Pictures: {done.folder / 'heads' / 'features.png'}; page: {done.heads_page}")
    say(f"\nReport page, to open in a browser: {done.page}")
    return 0


def _format_percent(figure: Any) -> str:
    low, high = figure.interval
    return f"{100 * float(figure):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
