"""Run attacks by kind, record one row per part and write the reliability page."""

import argparse
import importlib
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

from . import reliability_page, tally

KINDS = {
    "flips": "flipped_bits",
    "images": "fuzzed_images",
    "readers": "coverage_fuzzing",
    "numerics": "numerical_cases",
    "writers": "rival_writers",
    "galleries": "killed_galleries",
    "training": "killed_training",
    "settings": "fuzzed_settings",
    "configs": "fuzzed_configs",
    "service": "hostile_requests",
    "decoding": "expensive_pictures",
    "calibration": "calibration_draws",
    "mixed": "mixed_attack",
}


def main() -> int:
    """Run the named kinds of attack (default: all), skipping parts that have a row. Return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"kinds to run: {', '.join(KINDS)}; default: all")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="fraction of the full number of tries; below 1, no rows are recorded",
    )
    parser.add_argument("--again", action="store_true", help="repeat parts that already have a row")
    args = parser.parse_args()
    tally.AGAIN, tally.KEPT = args.again, args.scale >= 1
    failed = 0
    for kind in args.kinds or KINDS:
        module = importlib.import_module(f".{KINDS[kind]}", __package__)
        print(f"== {kind}", flush=True)
        for one in module.attack(args.scale):
            row = one.row()
            failed += row["failed"]
            told = f"{row['tried']} tried, {row['failed']} failed, {row['outcomes']}"
            print(f"{kind}, {row['part']}: {told}, {row['seconds']} s ({row['cpu_seconds']} s of CPU)", flush=True)
            if args.scale >= 1:
                tally.keep(row)
    if args.scale >= 1:
        reliability_page.write()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
