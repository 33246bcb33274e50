"""``hypersphere recipes``: list the experiments of Liu (2020), or show the settings of one."""

import argparse
import inspect

from .._extras import require


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the name and the size."""
    parser.add_argument("recipe", nargs="?", metavar="NAME", help="show the origin and all settings of this recipe")
    parser.add_argument(
        "--size",
        choices=("smoke", "laptop", "paper"),
        help="size of the experiment; adds network, batch size and steps to the list (default: laptop)",
    )


def run(args: argparse.Namespace) -> int:
    """Print a table of all recipes, or one recipe."""
    from .. import recipes
    from ..training import to_json

    if args.recipe is not None:
        entry = recipes.get(args.recipe)
        print(f"{inspect.getdoc(entry.function)}\n\n{to_json(entry.config(args.size or 'laptop'))}", end="")
        return 0
    table = require("rich.table").Table(box=require("rich.box").SIMPLE_HEAD)
    table.add_column("recipe", no_wrap=True)
    table.add_column("tables")
    table.add_column("data")
    if args.size:
        for heading in ("network", "batch", "steps"):
            table.add_column(heading, justify="left" if heading == "network" else "right")
    table.add_column("summary")
    for entry in recipes.RECIPES.values():
        details: list[str] = []
        data = entry.data
        if args.size:
            config = entry.config(args.size)
            data = config.data.name
            width = config.backbone.arguments.get("width")
            network = config.backbone.name if width is None else f"{config.backbone.name} × {width:g}"
            details = [network, str(config.batch_size), f"{config.steps:,}"]
        table.add_row(entry.name, entry.tables, data, *details, entry.summary)
    console = require("rich.console").Console()
    console = (
        console if console.is_terminal else require("rich.console").Console(width=200)
    )  # a file has no terminal width
    console.print(table, highlight=False)
    return 0
