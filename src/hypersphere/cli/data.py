"""``hypersphere data list | get NAME | check SOURCE``: list and fetch datasets, check your own data."""

import argparse
import functools
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.catalog import CATALOG
from ..data.errors import DataError
from ..data.fetch import get
from ..data.roots import VARIABLE, data_roots, locate
from .embedder_options import add_embedder_options, load_embedder
from .source_options import SOURCE_HELP, add_source_options, print_skipped, read_source_options
from .terminal import add_action

if TYPE_CHECKING:
    from ..recognition.label_check import LabelReport


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions: two for public datasets, one for your own data."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = add_action(
        actions, "list", "list public datasets, their folders, and how to get missing ones", "hypersphere data list"
    )
    getting = add_action(actions, "get", "fetch public datasets by name", "hypersphere data get lfw")
    getting.add_argument("names", nargs="+", metavar="NAME", help=f"one or more of {', '.join(CATALOG)}")
    getting.add_argument("--force", action="store_true", help="fetch a dataset again even if it is present")
    for action in (listing, getting):
        action.add_argument(
            "--root",
            metavar="FOLDER",
            help=f"data folder, or several separated by {os.pathsep} (default: the variable {VARIABLE}, or else a cache folder)",
        )
    checking = add_action(
        actions,
        "check",
        "find unreadable, duplicate and suspicious pictures before training",
        "hypersphere data check people/ --embedder sface -o review/",
    )
    checking.add_argument("source", metavar="SOURCE", help=SOURCE_HELP)
    checking.add_argument("--json", action="store_true", help="print every finding as JSON")
    checking.add_argument(
        "--embedder",
        help="also find wrong labels and similar pictures with the features of this embedder, such as sface",
    )
    checking.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FOLDER",
        help="with --embedder: folder for review.html, cleaned.csv (path, label) and findings.json",
    )
    add_embedder_options(checking)
    add_source_options(checking, "skip-errors")


def run(args: argparse.Namespace) -> int:
    """List datasets, fetch them (progress on stderr, folders on stdout), or check a source."""
    if args.action == "check":
        from ..data.checking import check

        if args.output is not None and args.embedder is None:
            raise ValueError("--output needs --embedder")
        report = check(args.source, **read_source_options(args))
        labels = None if args.embedder is None else _check_labels(args)
        if args.json:
            findings = report.to_json() | ({} if labels is None else {"labels": labels.to_json()})
            print(json.dumps(findings, indent=1, ensure_ascii=False))
        else:
            print(report if labels is None else f"{report}\n{labels}")
        return 0
    root = args.root.split(os.pathsep) if args.root else None
    if args.action == "get":
        for name in args.names:
            print(get(name, root, args.force, say=functools.partial(print, file=sys.stderr)))
        return 0
    print(f"data roots: {os.pathsep.join(map(str, data_roots(root)))}")
    for entry in CATALOG.values():
        print(f"{entry.name:<14} {_describe_state(entry.name, root):<40} {entry.title} [{entry.licence}]")
    return 0


def _check_labels(args: argparse.Namespace) -> "LabelReport":
    """Compare the labels with the features of ``--embedder``. With ``--output``, write the page and the tables."""
    from ..data.sources import open_source
    from ..data.sources.source import list_missing
    from ..files import write_json
    from ..recognition import embed
    from ..recognition.grouping_calibration import MEASURED
    from ..recognition.label_check import check_labels, write_cleaned_table
    from ..report.label_review import write_label_review

    options = {"identities": 1, "skip_missing": True, **read_source_options(args)}
    source, embedder = open_source(args.source, **options), load_embedder(args, args.embedder)
    features = embed(embedder, source, on_error="skip")
    print_skipped({**list_missing(source), **features.skipped})
    calibration = MEASURED.get(str(embedder.card.get("name")))
    report = check_labels(features.features, features.labels, features.files, calibration)
    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)
        index = {record.name: i for i, record in enumerate(source.records)}
        write_json(args.output / "findings.json", report.to_json())
        rows = write_cleaned_table(report, args.output / "cleaned.csv")
        page = write_label_review(
            report,
            args.output / "review.html",
            source.name,
            lambda i: source.load(index[report.names[i]], embedder.preprocessing),
        )
        print(f"{page}, and {rows} samples with unsuspicious labels in {args.output / 'cleaned.csv'}", file=sys.stderr)
    return report


def _describe_state(name: str, root: list[str] | None) -> str:
    """Return the folder of a dataset, how to get the dataset, or why it is unusable."""
    entry = CATALOG[name]
    if not entry.marks:
        return "built in"
    try:
        found = locate(name, root)
    except DataError as error:
        return f"unusable: {error}"
    return f"absent ({entry.how})" if found is None else str(found.path)
