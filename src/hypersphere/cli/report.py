"""``hypersphere report RUN…``: one HTML page about a run, or about several side by side."""

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the run folders and the file to write."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder; several runs are compared")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="file to write (default: report.html, in the run folder or, for several runs, in the current folder)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the page and print its path and size."""
    from ..report import write_page

    output = args.output or (None if len(args.runs) == 1 else "report.html")
    path = write_page(args.runs, output)
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0
