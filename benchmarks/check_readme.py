"""Measure the figures of the README again, and fail if one is off by more than 15 %.

``make bench-check`` runs this script, which takes a few minutes on a quiet machine. Figures that need large data, such as the
gallery of a million templates, are not measured.
"""

import functools
import pathlib
import re
import sys
import time
from collections.abc import Callable

import _harness
import heads
import torch
from _floors import compute_dense_floor, make_gradient_work

from hypersphere import orthogonal

README = pathlib.Path(__file__).parent.parent / "README.md"
TOLERANCE = 0.15


def measure_arcface(classes: int, seconds: float) -> _harness.Ratio:
    """Return the time of ArcFace relative to dense cross-entropy."""
    x, y = heads.draw_batch(classes)
    names = {"floor": "floor", "ArcFace": "ArcFace"}
    work: dict[str, Callable[[], object]] = {
        name: functools.partial(heads.run_step_and_free, heads.make_head(kind, classes), x, y)
        for name, kind in names.items()
    }
    return _harness.compare(work, "floor", seconds=seconds, warmup=1)["ArcFace"]


def measure_cayley(seconds: float) -> _harness.Ratio:
    """Return the time of the Cayley transform of a 576×576 matrix relative to the same with a hand-written gradient."""
    x, g = torch.randn(576, 576) / 24, torch.randn(576, 576)
    work: dict[str, Callable[[], object]] = {
        "floor": lambda: compute_dense_floor(x, g),
        "cayley": make_gradient_work(orthogonal.cayley, x, g),
    }
    return _harness.compare(work, "floor", seconds=seconds)["cayley"]


# Name of a figure → the pattern whose first group is the figure in the README, and a function that measures it.
FIGURES: dict[str, tuple[str, Callable[[], _harness.Ratio]]] = {
    "ArcFace, 1,000 classes": (r"for 1,000 classes ArcFace takes ([\d.]+) of", lambda: measure_arcface(1_000, 30.0)),
    "ArcFace, 100,000 classes": (
        r"\| ArcFace, 100,000 classes[^|]*\| ([\d.]+);",
        lambda: measure_arcface(100_000, 150.0),
    ),
    "Cayley transform, 576×576": (r"\| Cayley transform, 576×576[^|]*\| ([\d.]+) \|", lambda: measure_cayley(30.0)),
}


def read_figure(text: str, pattern: str) -> float:
    """Return the figure that the README states.

    Raises:
        ValueError: If the README has no such sentence.
    """
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(
            f"README.md has no text that matches {pattern!r}; change FIGURES in benchmarks/check_readme.py"
        )
    return float(match[1])


def main() -> int:
    """Print each figure with its measurement; return 1 if one differs by more than the tolerance."""
    p = _harness.make_parser(__doc__)
    p.set_defaults(threads=1)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    text, num_wrong, start = README.read_text(), 0, time.monotonic()
    rows: list[list[object]] = []
    for name, (pattern, measure) in FIGURES.items():
        stated, measured = read_figure(text, pattern), measure()
        off = abs(measured.value / stated - 1) > TOLERANCE
        num_wrong += off
        print(f"{name}: README {stated:g}, measured {measured}{'  OFF' if off else ''}", flush=True)
        rows.append([name, f"{stated:g}", str(measured)])
    notes = (
        "ArcFace: forward and backward of 128 samples of 512 dimensions, relative to dense cross-entropy, whose products use MKL. "
        "The Cayley transform: relative\nto the same computation with a hand-written gradient. Medians with 95 % intervals. "
        f"`make bench-check` took {(time.monotonic() - start) / 60:.1f} minutes."
    )
    how = "interleaved rounds until the interval is below 5 % or 30 s (100,000 classes: 150 s) have passed."
    _harness.write_report("readme", "Figures of the README", ["figure", "README", "measured"], rows, args, notes, how)
    return int(num_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
