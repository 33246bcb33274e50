"""The report of the fine-tuning study: tables with intervals paired by seed."""

import argparse
import itertools
import math
import statistics
from typing import Any

from _harness import write_report

METHODS = ("OFT", "LoRA", "full")
T_QUANTILES = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # of 95 % intervals, by degrees of freedom
Rows = list[dict[str, Any]]


def write_tables(rows: Rows, args: argparse.Namespace) -> None:
    """Print the tables and write them with ``--record``."""
    seeds = find_complete_seeds(rows)
    if not seeds:
        raise SystemExit("no seed has test rows of all methods: run the study first")
    lines: list[list[object]] = [_format_head_only(rows, seeds)]
    lines += [_format_line(rows, method, phase, seeds) for phase in ("test", "gentler") for method in METHODS]
    header = [
        "method",
        "learning rate",
        "new %",
        "old %",
        "forgotten",
        "old % by means",
        "parameters",
        "CPU ms per step",
    ]
    parts = [
        _format_paired(rows, seeds),
        _format_equal(rows, seeds),
        _format_rewound(rows),
        _format_rates(rows),
        _format_choice(rows),
        _describe_conditions(rows),
    ]
    notes = "\n\n".join(part for part in parts if part)
    title = "Does orthogonal fine-tuning forget less? An nGPT tuned to other classes of Tiny-ImageNet"
    write_report(
        "finetune_study", title, header, [x for x in lines if x], args, notes, f"seeds {', '.join(map(str, seeds))}."
    )


def find_complete_seeds(rows: Rows) -> list[int]:
    """Return the seeds whose test rows are complete."""
    have = {(r["method"], r["seed"]) for r in rows if r["phase"] == "test"}
    return sorted({seed for _, seed in have if all((m, seed) in have for m in ("head-only", *METHODS))})


def format_interval(values: list[float], digits: int = 1) -> str:
    """Format a mean with its 95 % interval of Student's t distribution."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    half = T_QUANTILES[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def find_row(rows: Rows, method: str, phase: str, seed: int) -> dict[str, Any] | None:
    """Return the row of a method, or None."""
    return next((r for r in rows if (r.get("method"), r["phase"], r.get("seed")) == (method, phase, seed)), None)


def _format_head_only(rows: Rows, seeds: list[int]) -> list[object]:
    points = [_get_start(rows, seed) for seed in seeds]
    rate = find_row(rows, "head-only", "test", seeds[0])["rate"]
    cells = [format_interval([p[key] for p in points]) for key in ("new", "old")]
    return ["head-only", f"{rate:g}", *cells, "0", format_interval([p["old_means"] for p in points]), 0, "–"]


def _format_line(rows: Rows, method: str, phase: str, seeds: list[int]) -> list[object]:
    runs = [find_row(rows, method, phase, seed) for seed in seeds]
    if not all(runs):
        return []
    ends = [run["curve"][-1] for run in runs]
    lost = [_get_start(rows, seed)["old"] - end["old"] for seed, end in zip(seeds, ends, strict=True)]
    cells = [
        format_interval([e["new"] for e in ends]),
        format_interval([e["old"] for e in ends]),
        format_interval(lost),
    ]
    spent = statistics.median(run["ms"] for run in runs)
    label = method if phase == "test" else f"{method}, a third of the learning rate"
    return [
        label,
        f"{runs[0]['rate']:g}",
        *cells,
        format_interval([e["old_means"] for e in ends]),
        runs[0]["parameters"],
        round(spent),
    ]


def _get_start(rows: Rows, seed: int) -> dict[str, float]:
    """Return the accuracies of the head on frozen features, from which every method starts."""
    return find_row(rows, "head-only", "test", seed)["curve"][0]


def _format_paired(rows: Rows, seeds: list[int]) -> str:
    lines = ["At the chosen learning rates, differences paired by seed (points of accuracy, 95 % interval):", ""]
    for other in METHODS[1:]:
        pairs = [[find_row(rows, m, "test", s)["curve"][-1] for m in ("OFT", other)] for s in seeds]
        new, old, means = ([a[key] - b[key] for a, b in pairs] for key in ("new", "old", "old_means"))
        lines.append(
            f"- OFT minus {other}: new classes {format_interval(new)}, "
            f"old classes {format_interval(old)}, by means {format_interval(means)}"
        )
    return "\n".join(lines)


def _format_equal(rows: Rows, seeds: list[int]) -> str:
    """Return the highest old accuracy of each method at a level of new accuracy that all three reach."""
    lines = [
        "At equal accuracy on the new classes. The level is the accuracy of the head plus a share of the gain that all three methods "
        "reach. The value of a method is the highest old accuracy on any of its curves, linearly interpolated:",
        "",
    ]
    for share in (0.5, 1.0):
        kept: dict[str, list[float]] = {method: [] for method in METHODS}
        levels = []
        for seed in seeds:
            start = _get_start(rows, seed)["new"]
            top = min(max(new for curve in _get_curves(rows, m, seed) for new, _ in curve) for m in METHODS)
            level = start + share * (top - start)
            levels.append(level - start)
            for method in METHODS:
                kept[method].append(max(_interpolate(curve, level) for curve in _get_curves(rows, method, seed)))
        base = [_get_start(rows, seed)["old"] for seed in seeds]
        lost = {m: [b - k for b, k in zip(base, kept[m], strict=True)] for m in METHODS}
        text = ", ".join(f"{m} loses {format_interval(lost[m])}" for m in METHODS)
        against = ", ".join(
            f"OFT minus {m} {format_interval([a - b for a, b in zip(kept['OFT'], kept[m], strict=True)])}"
            for m in METHODS[1:]
        )
        lines.append(
            f"- {share:.0%} of that gain ({format_interval(levels)} points): {text}. Old accuracy, paired: {against}."
        )
    return "\n".join(lines)


def _get_curves(rows: Rows, method: str, seed: int) -> list[list[tuple[float, float]]]:
    """Return the (new, old) accuracies of every run of a method, starting with the head."""
    start = _get_start(rows, seed)
    runs = [find_row(rows, method, phase, seed) for phase in ("test", "gentler")]
    return [[(p["new"], p["old"]) for p in (start, *run["curve"])] for run in runs if run is not None]


def _interpolate(curve: list[tuple[float, float]], level: float) -> float:
    """Return the old accuracy at which the curve first reaches a level of new accuracy; −∞ if it never does."""
    for (new, old), (then, after) in itertools.pairwise(curve):
        if new >= level:
            return old
        if then >= level:
            return old + (after - old) * (level - new) / (then - new)
    return curve[-1][1] if curve[-1][0] >= level else -math.inf


def _format_rewound(rows: Rows) -> str:
    """Compare OFT with scaled learning rates and LoRA, each rewound to a share chosen on validation images."""
    held = {(r["method"], r["seed"]): r["curve"] for r in rows if r["phase"] == "rewind"}
    seeds = sorted({seed for _, seed in held if all((method, seed) in held for method in ("OFT", "LoRA"))})
    if not seeds:
        return ""
    lines = [
        f"Rewound, draws {', '.join(map(str, seeds))}: the smallest share whose validation accuracy on the new classes is"
    ]
    lines[0] += " within a tolerance of the best, chosen for each draw and method; differences paired by draw:"
    lines.append("")
    for tolerance in (0.0, 1.0, 2.0):
        chosen = {key: _choose_point(curve, tolerance) for key, curve in held.items()}
        pairs = [(chosen["OFT", seed], chosen["LoRA", seed]) for seed in seeds]
        text = ", ".join(
            f"{'new' if key == 'new' else 'old'} classes {format_interval([a[key] - b[key] for a, b in pairs])}"
            for key in ("new", "old")
        )
        shares = [
            f"{name} {format_interval([pair[i]['t'] for pair in pairs], 2)}" for i, name in enumerate(("OFT", "LoRA"))
        ]
        kept = [
            f"{name} {format_interval([pair[i]['old'] - held[name, s][-1]['old'] for pair, s in zip(pairs, seeds, strict=True)])}"
            for i, name in enumerate(("OFT", "LoRA"))
        ]
        lines.append(
            f"- tolerance {tolerance:g} points, shares {', '.join(shares)}: OFT minus LoRA {text}; on the old classes, "
            f"rewinding gains: {', '.join(kept)}."
        )
    return "\n".join(lines)


def _choose_point(curve: Rows, tolerance: float) -> dict[str, Any]:
    """Return the point with the smallest share within the tolerance of the best validation accuracy."""
    best = max(point["held"] for point in curve)
    return next(point for point in sorted(curve, key=lambda p: p["t"]) if point["held"] >= best - tolerance)


def _format_rates(rows: Rows) -> str:
    """Return the validation accuracy of OFT by block size, with one unscaled and one scaled learning rate."""
    found_rows = [r for r in rows if r["phase"] == "rates"]
    if not found_rows:
        return ""
    lines = [
        "OFT at one learning rate for all block sizes, on the draw that chose it: block → validation accuracy (old classes):",
        "",
    ]
    for rule in ("scaled", "plain"):
        runs = sorted((r for r in found_rows if r["rule"] == rule), key=lambda r: r["block"])
        if runs:
            points = ", ".join(f"{r['block']} → {r['held']:.1f} ({r['old']:.1f})" for r in runs)
            lines.append(f"- {rule}, learning rate {runs[0]['rate']:g}: {points}")
    return "\n".join(lines)


def _format_choice(rows: Rows) -> str:
    lines = [
        "On the draw of classes that chose the learning rates: learning rate → validation accuracy (accuracy on the old classes):",
        "",
    ]
    for method in ("head-only", *METHODS):
        runs = sorted((r for r in rows if r["phase"] == "choice" and r["method"] == method), key=lambda r: r["rate"])
        ends = [(r["rate"], r["curve"][-1]) for r in runs]
        lines.append(f"- {method}: " + ", ".join(f"{rate:g} → {e['new']:.1f} ({e['old']:.1f})" for rate, e in ends))
    return "\n".join(lines)


def _describe_conditions(rows: Rows) -> str:
    from finetune_study import BATCH, BLOCK, EPOCHS, MODEL, RANK, STEPS
    from finetune_study_data import IMAGES, NEW, OLD

    (pretraining,) = [r for r in rows if r["phase"] == "pretraining"]
    return (
        f"One nGPT ({', '.join(f'{k} {v}' for k, v in MODEL.items())}), trained once on {OLD} classes for {EPOCHS} epochs "
        f"({pretraining['seconds']} CPU seconds), is shared by the seeds. Each seed draws {NEW} new classes "
        f"({IMAGES} training images each), a head and an order of images. Test images are the 50 validation images per class. "
        f"Every method starts from the trained head and takes {STEPS} steps of AdamW with {BATCH} images: OFT with blocks "
        f"of {BLOCK} and LoRA of rank {RANK} on every linear layer of the blocks, full fine-tuning on all weights, which are "
        "normalized after each step. Old classes: the old head on the tuned backbone, and the nearest class mean of "
        "40 training images per class. The seeds share the images of the old classes, so the intervals describe the draws "
        "of new classes, not other networks. Times were measured on a busy machine."
    )
