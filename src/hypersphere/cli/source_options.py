"""Command-line options for opening a source of pictures."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

OPTIONS = ("split", "depth", "root", "images", "labels")
IMAGES_HELP = "pictures or recordings: files, folders, tables, tar shards or .npz arrays"
SOURCE_HELP = "labeled pictures: a folder with one sub-folder per identity, a table, tar shards or an .npz array"


def add_source_options(parser: argparse.ArgumentParser, *omit: str) -> None:
    """Add ``--split``, ``--depth``, ``--root``, ``--images``, ``--labels`` and ``--skip-errors`` to a command.

    Args:
        parser: The parser of the command.
        *omit: Options that the command does not have, such as ``"split"``.

    >>> parser = argparse.ArgumentParser()
    >>> add_source_options(parser)
    >>> read_source_options(parser.parse_args(["--labels", "who", "--skip-errors"]))
    {'labels': 'who', 'on_error': 'skip'}
    """
    group = parser.add_argument_group("source options")
    options: dict[str, dict[str, Any]] = {
        "split": {"metavar": "NAME", "help": "use only this split of the source, such as test"},
        "depth": {
            "type": int,
            "metavar": "N",
            "help": "for folders: how many folder levels make up the name of an identity (default: 1)",
        },
        "root": {
            "metavar": "FOLDER",
            "help": "for tables and lists of pairs: folder that contains the files (default: the folder of the table or list)",
        },
        "images": {
            "metavar": "NAME",
            "help": "name of the array (.npz) or column (table, saved dataset) with the images",
        },
        "labels": {
            "metavar": "NAME",
            "help": "name of the array (.npz) or column (table, saved dataset) with the labels",
        },
        "skip-errors": {
            "action": "store_true",
            "help": "skip unreadable pictures or recordings and list them on stderr",
        },
    }
    for name, settings in options.items():
        if name not in omit:
            group.add_argument(f"--{name}", **settings)


def read_source_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of :func:`~hypersphere.data.open_source` that were given on the command line."""
    values = {name: getattr(args, name, None) for name in OPTIONS}
    given = {name: value for name, value in values.items() if value is not None}
    return given | ({"on_error": "skip"} if getattr(args, "skip_errors", False) else {})


def print_skipped(skipped: Mapping[str, str]) -> None:
    """Print one line to stderr for each skipped sample.

    Args:
        skipped: The reason for each name of a sample.
    """
    from ..data.sources.source import list_skipped

    for line in list_skipped(skipped):
        print(line, file=sys.stderr)
