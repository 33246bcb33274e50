"""``hypersphere data list | get NAME | check SOURCE``: which datasets are present, obtaining them, checking one's own."""

import argparse
import functools
import json
import os
import sys

from ..data.catalog import CATALOG
from ..data.errors import DataError
from ..data.fetch import get
from ..data.roots import VARIABLE, data_roots, locate
from .source_options import SOURCE_HELP, add_source_options, read_source_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Three actions: two know the datasets by name, one takes anyone's pictures."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="show which datasets are present and how to get the others")
    getting = actions.add_parser("get", help="fetch datasets by name")
    getting.add_argument("names", nargs="+", metavar="NAME", help=", ".join(CATALOG))
    getting.add_argument("--force", action="store_true", help="fetch again even if present")
    for action in (listing, getting):
        action.add_argument(
            "--root", help=f"data folder, or several separated as in PATH (default: {VARIABLE}, else a cache folder)"
        )
    checking = actions.add_parser("check", help="find unreadable, duplicate and suspicious pictures before training")
    checking.add_argument("source", help=SOURCE_HELP)
    checking.add_argument("--json", action="store_true", help="print every finding as JSON")
    add_source_options(checking, "skip-errors")


def run(args: argparse.Namespace) -> int:
    """Print a table, or obtain one dataset after the other (progress on stderr, folders on stdout), or check a source."""
    if args.action == "check":
        from ..data.checking import check

        report = check(args.source, **read_source_options(args))
        print(json.dumps(report.to_json(), indent=1, ensure_ascii=False) if args.json else report)
        return 0
    root = args.root.split(os.pathsep) if args.root else None
    if args.action == "get":
        for name in args.names:
            print(get(name, root, args.force, say=functools.partial(print, file=sys.stderr)))
        return 0
    print(f"data roots: {os.pathsep.join(map(str, data_roots(root)))}")
    for entry in CATALOG.values():
        print(f"{entry.name:<14} {_state(entry.name, root):<40} {entry.title} [{entry.licence}]")
    return 0


def _state(name: str, root: list[str] | None) -> str:
    """The folder, or how it is obtained; what is unreadable says so."""
    entry = CATALOG[name]
    if not entry.marks:
        return "built in"
    try:
        found = locate(name, root)
    except DataError as error:
        return f"unusable: {error}"
    return f"absent ({entry.how})" if found is None else str(found.path)
