"""``hypersphere demo``: the main road on the embedded digits, four heads side by side, and a report page."""

import argparse
from typing import Any

from ..._extras import require


def configure(parser: argparse.ArgumentParser) -> None:
    """Where to write, and for how long to train."""
    parser.add_argument("-o", "--output", default="runs/demo", help="folder for everything it makes (%(default)s)")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training digits per head (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Say at each part what is done and by which command, then what came out; the last line is the report page."""
    from . import demo_page, digit_gallery, four_heads
    from .demonstration import demonstrate

    console = require("rich.console").Console(highlight=False, markup=False, soft_wrap=True)
    say = console.print

    def table(columns: Any, rows: Any) -> None:
        made = require("rich.table").Table(box=require("rich.box").SIMPLE)
        for place, column in enumerate(columns):
            made.add_column(column, justify="left" if place == 0 else "right")
        for row in rows:
            made.add_row(*row)
        console.print(made, soft_wrap=False)

    def fitted(done: Any) -> None:
        report = done.report
        say(
            f"   Strangers, {report.labels.unique().numel()} digits and {len(report.labels)} pictures that it never saw:"
        )
        say(f"   rank-1 {_percent(report.rank(1))}: the most similar other picture shows the same digit")
        say(
            f"   EER {_percent(report.eer)}: pairs judged wrongly where both errors are equal; seven digits teach little of others"
        )

    def asked(answers: Any, threshold: float) -> None:
        say("\n3. A gallery: enrol the seven digits, set a threshold with strangers, ask about new pictures")
        for line in demo_page.commands(args.output, threshold):
            say(f"   {line}")
        table(demo_page.ANSWER_COLUMNS, [demo_page.answer_row(digit) for digit in answers])
        shown = " and ".join(digit_gallery.SHOWN_BEFORE)
        say(
            f"   Below a cosine of {threshold:.3f} nobody is named: so few of {shown} were let in when the threshold was set"
        )
        say(
            f"   ({digit_gallery.FPIR:.0%} of other pictures of them). {digit_gallery.STRANGERS[-1]} took part in nothing before."
        )
        say("\n4. Four heads on all ten digits, features in three dimensions")

    known, strangers = ", ".join(digit_gallery.KNOWN), ", ".join(digit_gallery.STRANGERS)
    say(f"1. A folder of pictures: {args.output}/pictures, with train/ ({known}) and test/ (the strangers {strangers})")
    say("\n2. A recogniser, measured on the strangers")
    say(f"   hypersphere fit {args.output}/pictures -o {args.output}/fit {' '.join(digit_gallery.FIT)}")
    with require("rich.progress").Progress(console=console, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def progress(name: str, epoch: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(f"   {name:>10}", total=args.epochs)
            bars.update(tasks[name], completed=epoch)

        done = demonstrate(
            args.output, epochs=args.epochs, seed=args.seed, progress=progress, fitted=fitted, asked=asked
        )
    table(["head", *four_heads.COLUMNS.values()], [demo_page.head_row(head) for head in done.heads])
    say(f"   Pictures: {done.folder / 'heads' / 'features.png'}; page: {done.heads_page}")
    say(f"\nReport page, to open in a browser: {done.page}")
    return 0


def _percent(figure: Any) -> str:
    low, high = figure.interval
    return f"{100 * float(figure):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
