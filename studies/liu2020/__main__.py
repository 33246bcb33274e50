"""Run a claim of Liu (2020) and print its published and measured values: ``python -m studies.liu2020 ID``."""

import argparse
import functools
import sys
from collections.abc import Sequence
from typing import Any

from hypersphere.data import MissingDataError

from . import report, runner
from .claims import CLAIMS, get_claim
from .html_page import write_claim
from .markdown_page import format_claim
from .rows import FOLDER, get_rows_path, read_rows

COMMAND = "python -m studies.liu2020"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser: one claim, or one of three actions on all claims."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("id", nargs="?", metavar="ID", help="id of a claim; --list prints them")
    action.add_argument("--list", action="store_true", help="print all claims with their recorded and missing runs")
    action.add_argument(
        "--report", action="store_true", help="write the index, the pages and the pictures from the recorded rows"
    )
    action.add_argument(
        "--missing", action="store_true", help="run all missing runs of all claims, then write the report"
    )
    parser.add_argument(
        "--size", default="laptop", help="laptop, the recorded setting, or paper, that of Liu (2020) (%(default)s)"
    )
    parser.add_argument("--seeds", type=int, help="number of seeds per arm (default: set by the claim)")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="arms to run, e.g. 'CNN-6/*' (default: all)")
    parser.add_argument("--results", default=str(FOLDER / "rows"), help="folder of the rows (%(default)s)")
    parser.add_argument("--runs", default="runs/reproduce", help="folder for checkpoints and logs (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 keeps torch's default")
    parser.add_argument(
        "--pilot",
        nargs="*",
        metavar="KEY=VALUE",
        help="run one seed with changed settings, evaluated on validation samples",
    )
    parser.add_argument("--page", metavar="FILE", help="also write an HTML page about the claim")
    parser.add_argument("--output", default=str(FOLDER), help="folder that receives the report (%(default)s)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; progress goes to stderr."""
    args = build_parser().parse_args(argv)
    try:
        return run(args)
    except (ValueError, OSError, ImportError) as error:
        print(f"{COMMAND}: {error}", file=sys.stderr)
        return 1


def run(args: argparse.Namespace) -> int:
    """Do what the parsed arguments ask for."""
    if args.list:
        print(report.format_listing(args.results))
        return 0
    if args.report:
        for path in report.write_report(args.results, args.output):
            print(path)
        return 0
    say = functools.partial(print, file=sys.stderr, flush=True)
    where: dict[str, Any] = {"results": args.results, "runs": args.runs, "threads": args.threads}
    if args.missing:
        return run_missing(args, where, say)
    claim = get_claim(args.id)
    if args.pilot is not None:
        runner.run_pilot(claim, args.pilot, only=args.only, say=print, **where)
        return 0
    rows = runner.reproduce(claim, args.size, seeds=args.seeds, only=args.only, say=say, **where)
    print(format_claim(claim, rows, tuning=read_rows(get_rows_path(claim, args.results, "-tuning"))))
    if args.page:
        command = f"{COMMAND} {claim.id} --size {args.size}"
        say(f"page: {write_claim(claim, rows, args.page, command=command)}")
    return 0


def run_missing(args: argparse.Namespace, where: dict[str, Any], say: runner.Say) -> int:
    """Run the missing runs of every claim; return 1 if the data of some claim are missing."""
    claims_without_data = 0
    for claim in CLAIMS.values():
        try:
            runner.reproduce(claim, seeds=args.seeds, say=say, **where)
        except MissingDataError as error:  # the data of the other claims may be present
            say(f"{claim.id}: {error}")
            claims_without_data += 1
        report.write_report(args.results, args.output)
    return int(claims_without_data > 0)


if __name__ == "__main__":
    sys.exit(main())
