"""``hypersphere demo``: four heads on the digits, a table and pictures."""

import argparse

from .._extras import require


def configure(parser: argparse.ArgumentParser) -> None:
    """Where to write, and for how long to train."""
    parser.add_argument("-o", "--output", default="runs/demo", help="folder for the pictures and models (%(default)s)")
    parser.add_argument("--epochs", type=int, default=40, help="passes over the training digits per head (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> int:
    """Train with a progress bar a head, then print the table."""
    from ..experiments import demonstration as demo

    console = require("rich.console").Console()
    with require("rich.progress").Progress(console=console) as bars:
        tasks = {name: bars.add_task(f"{name:>10}", total=max(args.epochs, 1)) for name in demo.HEADS}
        results = demo.run(
            args.output, epochs=args.epochs, seed=args.seed, progress=lambda name, _: bars.advance(tasks[name])
        )
    table = require("rich.table").Table(title="Digits, 3-D features: tighter classes under margins")
    table.add_column("head")
    for heading in demo.COLUMNS.values():
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(result.name, *(f"{result.row[key]:.{4 if key == 'fisher' else 1}f}" for key in demo.COLUMNS))
    console.print(table)
    console.print(
        f"Pictures and models: {args.output}/features.png, angles.png, training.png, and a run for each head",
        highlight=False,
    )
    return 0
