"""``hypersphere reproduce ID``: run a claim of Liu (2020), and print what was measured beside what was published."""

import argparse
import functools
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    """A claim, or one of three ways to treat all of them."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("id", nargs="?", metavar="ID", help="of a claim; --list shows them")
    what.add_argument("--list", action="store_true", help="show the claims, and how many runs of each are recorded")
    what.add_argument(
        "--report",
        action="store_true",
        help="write RESULTS.md and its pictures from the recorded rows, running nothing",
    )
    what.add_argument(
        "--missing",
        action="store_true",
        help="run what is missing of every claim, the quickest claims first, and write the report after each",
    )
    parser.add_argument(
        "--size", default="laptop", help="laptop, as recorded here, or paper, the setting of Liu (2020) (%(default)s)"
    )
    parser.add_argument("--seeds", type=int, help="runs of each arm (the claim's own number)")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="of the arms to run, e.g. 'CNN-6/*' (all)")
    parser.add_argument("--results", default="results", help="folder of the rows, one file a claim (%(default)s)")
    parser.add_argument("--runs", default="runs/reproduce", help="folder for checkpoints and logs (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0 leaves torch's choice")
    parser.add_argument(
        "--pilot",
        nargs="*",
        metavar="KEY=VALUE",
        help="one seed of the arms of --only under other settings, measured on held-out training samples",
    )
    parser.add_argument("--page", metavar="FILE", help="also write a page about the claim, to open in a browser")
    parser.add_argument("--output", default=".", help="where --report writes RESULTS.md and docs/results (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """List, report, or run what is missing; progress on stderr."""
    from ..data import MissingDataError
    from ..experiments import reproduce as claims
    from ..experiments.reproduce import results
    from ..experiments.reproduce.claim_page import write_claim
    from ..experiments.reproduce.rows import read_rows, results_file
    from ..experiments.reproduce.section import section

    if args.list:
        print(results.listing(args.results))
        return 0
    if args.report:
        for path in results.write(args.results, args.output):
            print(path)
        return 0
    say = functools.partial(print, file=sys.stderr, flush=True)
    where = {"results": args.results, "runs": args.runs, "seeds": args.seeds, "threads": args.threads}
    if args.missing:
        lacking = 0
        for claim in claims.CLAIMS.values():
            try:
                claims.reproduce(claim, say=say, **where)
            except MissingDataError as error:  # the other claims may have their data
                say(f"{claim.id}: {error}")
                lacking += 1
            results.write(args.results, args.output)
        return int(lacking > 0)
    claim = claims.get(args.id)
    if args.pilot is not None:
        where.pop("seeds")
        claims.pilot(claim, args.pilot, only=args.only, say=print, **where)
        return 0
    rows = claims.reproduce(claim, args.size, only=args.only, say=say, **where)
    print(section(claim, rows, tuning=read_rows(results_file(claim, args.results, "-tuning"))))
    if args.page:
        say(
            f"page: {write_claim(claim, rows, args.page, command=f'hypersphere reproduce {claim.id} --size {args.size}')}"
        )
    return 0
