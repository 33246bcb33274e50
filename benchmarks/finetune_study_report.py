"""The report of the study of fine-tuning: tables with intervals paired by seed, and a picture."""

import argparse
import itertools
import math
import pathlib
import statistics
from typing import Any

from _harness import report

PICTURE = pathlib.Path(__file__).parent.parent / "docs" / "assets" / "finetune_study.png"
METHODS = ("OFT", "LoRA", "full")
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # of the 95 % interval, by degrees of freedom
Rows = list[dict[str, Any]]


def write(rows: Rows, args: argparse.Namespace) -> None:
    """Print the tables and, with ``--record``, write them with the picture."""
    seeds = complete(rows)
    if not seeds:
        raise SystemExit("no seed has a test row of every method yet: run the study first")
    lines: list[list[object]] = [_head_only(rows, seeds)]
    lines += [_line(rows, method, phase, seeds) for phase in ("test", "gentler") for method in METHODS]
    header = ["tuning", "rate", "new %", "old %", "forgotten", "old % by means", "learned numbers", "CPU ms a step"]
    parts = [_paired(rows, seeds), _equal(rows, seeds), _rewound(rows), _rates(rows), _choice(rows), _how(rows)]
    notes = "\n\n".join(part for part in parts if part)
    title = "Does orthogonal fine-tuning forget less? An nGPT tuned to other classes of Tiny-ImageNet"
    report(
        "finetune_study", title, header, [x for x in lines if x], args, notes, f"seeds {', '.join(map(str, seeds))}."
    )
    if args.record:
        _draw(rows, seeds)


def complete(rows: Rows) -> list[int]:
    """The seeds whose test rows are all there."""
    have = {(r["method"], r["seed"]) for r in rows if r["phase"] == "test"}
    return sorted({seed for _, seed in have if all((m, seed) in have for m in ("head-only", *METHODS))})


def interval(values: list[float], digits: int = 1) -> str:
    """Mean and 95 % interval of Student's distribution."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    half = STUDENT[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def found(rows: Rows, method: str, phase: str, seed: int) -> dict[str, Any] | None:
    """The row of a method."""
    return next((r for r in rows if (r.get("method"), r["phase"], r.get("seed")) == (method, phase, seed)), None)


def _head_only(rows: Rows, seeds: list[int]) -> list[object]:
    points = [_start(rows, seed) for seed in seeds]
    rate = found(rows, "head-only", "test", seeds[0])["rate"]
    cells = [interval([p[key] for p in points]) for key in ("new", "old")]
    return ["head-only", f"{rate:g}", *cells, "0", interval([p["old_means"] for p in points]), 0, "–"]


def _line(rows: Rows, method: str, phase: str, seeds: list[int]) -> list[object]:
    runs = [found(rows, method, phase, seed) for seed in seeds]
    if not all(runs):
        return []
    ends = [run["curve"][-1] for run in runs]
    lost = [_start(rows, seed)["old"] - end["old"] for seed, end in zip(seeds, ends, strict=True)]
    cells = [interval([e["new"] for e in ends]), interval([e["old"] for e in ends]), interval(lost)]
    spent = statistics.median(run["ms"] for run in runs)
    label = method if phase == "test" else f"{method}, a third of the rate"
    return [
        label,
        f"{runs[0]['rate']:g}",
        *cells,
        interval([e["old_means"] for e in ends]),
        runs[0]["parameters"],
        round(spent),
    ]


def _start(rows: Rows, seed: int) -> dict[str, float]:
    """Where every method starts from: the head on frozen features."""
    return found(rows, "head-only", "test", seed)["curve"][0]


def _paired(rows: Rows, seeds: list[int]) -> str:
    lines = ["At the chosen rates, differences paired by seed (points of accuracy, 95 % interval):", ""]
    for other in METHODS[1:]:
        pairs = [[found(rows, m, "test", s)["curve"][-1] for m in ("OFT", other)] for s in seeds]
        new, old, means = ([a[key] - b[key] for a, b in pairs] for key in ("new", "old", "old_means"))
        lines.append(
            f"- OFT less {other}: new classes {interval(new)}, old classes {interval(old)}, by means {interval(means)}"
        )
    return "\n".join(lines)


def _equal(rows: Rows, seeds: list[int]) -> str:
    """The most of the old accuracy that a method keeps at a level of new accuracy that all three reach."""
    lines = [
        "At equal accuracy on the new classes. The level is the head's accuracy plus a share of the gain that all three "
        "reach; a method's value is the highest old accuracy on any of its curves, between measured points by straight lines:",
        "",
    ]
    for share in (0.5, 1.0):
        kept: dict[str, list[float]] = {method: [] for method in METHODS}
        levels = []
        for seed in seeds:
            start = _start(rows, seed)["new"]
            top = min(max(new for curve in _curves(rows, m, seed) for new, _ in curve) for m in METHODS)
            level = start + share * (top - start)
            levels.append(level - start)
            for method in METHODS:
                kept[method].append(max(_at(curve, level) for curve in _curves(rows, method, seed)))
        base = [_start(rows, seed)["old"] for seed in seeds]
        lost = {m: [b - k for b, k in zip(base, kept[m], strict=True)] for m in METHODS}
        text = ", ".join(f"{m} loses {interval(lost[m])}" for m in METHODS)
        against = ", ".join(
            f"OFT less {m} {interval([a - b for a, b in zip(kept['OFT'], kept[m], strict=True)])}" for m in METHODS[1:]
        )
        lines.append(f"- {share:.0%} of that gain ({interval(levels)} points): {text}. Kept, paired: {against}.")
    return "\n".join(lines)


def _curves(rows: Rows, method: str, seed: int) -> list[list[tuple[float, float]]]:
    """(new, old) along every run of a method, from the head on."""
    start = _start(rows, seed)
    runs = [found(rows, method, phase, seed) for phase in ("test", "gentler")]
    return [[(p["new"], p["old"]) for p in (start, *run["curve"])] for run in runs if run is not None]


def _at(curve: list[tuple[float, float]], level: float) -> float:
    """The old accuracy where the curve first reaches the level, −∞ if it never does."""
    for (new, old), (then, after) in itertools.pairwise(curve):
        if new >= level:
            return old
        if then >= level:
            return old + (after - old) * (level - new) / (then - new)
    return curve[-1][1] if curve[-1][0] >= level else -math.inf


def _rewound(rows: Rows) -> str:
    """OFT with scaled rates against LoRA, each rewound to a share that validation images choose."""
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
        chosen = {key: _choose(curve, tolerance) for key, curve in held.items()}
        pairs = [(chosen["OFT", seed], chosen["LoRA", seed]) for seed in seeds]
        text = ", ".join(
            f"{'new' if key == 'new' else 'old'} classes {interval([a[key] - b[key] for a, b in pairs])}"
            for key in ("new", "old")
        )
        shares = [f"{name} {interval([pair[i]['t'] for pair in pairs], 2)}" for i, name in enumerate(("OFT", "LoRA"))]
        kept = [
            f"{name} gains {interval([pair[i]['old'] - held[name, s][-1]['old'] for pair, s in zip(pairs, seeds, strict=True)])}"
            for i, name in enumerate(("OFT", "LoRA"))
        ]
        lines.append(
            f"- tolerance {tolerance:g} points, shares {', '.join(shares)}: OFT less LoRA {text}; on the old classes, "
            f"by rewinding, {', '.join(kept)}."
        )
    return "\n".join(lines)


def _choose(curve: Rows, tolerance: float) -> dict[str, Any]:
    """The point with the smallest share within the tolerance of the best validation accuracy."""
    best = max(point["held"] for point in curve)
    return next(point for point in sorted(curve, key=lambda p: p["t"]) if point["held"] >= best - tolerance)


def _rates(rows: Rows) -> str:
    """Validation accuracy of OFT for block sizes, with one plain and one scaled rate."""
    found_rows = [r for r in rows if r["phase"] == "rates"]
    if not found_rows:
        return ""
    lines = [
        "OFT at one rate for all block sizes, on the draw that chose the rates: block → validation accuracy (old classes):",
        "",
    ]
    for rule in ("scaled", "plain"):
        mine = sorted((r for r in found_rows if r["rule"] == rule), key=lambda r: r["block"])
        if mine:
            points = ", ".join(f"{r['block']} → {r['held']:.1f} ({r['old']:.1f})" for r in mine)
            lines.append(f"- {rule}, rate {mine[0]['rate']:g}: {points}")
    return "\n".join(lines)


def _choice(rows: Rows) -> str:
    lines = ["On the draw of classes that chose the rates: rate → held-out accuracy, and that on the old classes:", ""]
    for method in ("head-only", *METHODS):
        runs = sorted((r for r in rows if r["phase"] == "choice" and r["method"] == method), key=lambda r: r["rate"])
        ends = [(r["rate"], r["curve"][-1]) for r in runs]
        lines.append(f"- {method}: " + ", ".join(f"{rate:g} → {e['new']:.1f} ({e['old']:.1f})" for rate, e in ends))
    return "\n".join(lines)


def _how(rows: Rows) -> str:
    from finetune_study import BATCH, BLOCK, EPOCHS, MODEL, RANK, STEPS
    from finetune_study_data import IMAGES, NEW, OLD

    (pretraining,) = [r for r in rows if r["phase"] == "pretraining"]
    return (
        f"One nGPT ({', '.join(f'{k} {v}' for k, v in MODEL.items())}), trained once on {OLD} classes for {EPOCHS} epochs "
        f"({pretraining['seconds']} CPU seconds), is shared by the seeds; a seed draws its own {NEW} new classes "
        f"({IMAGES} training images each), head and order of images. Tests are the 50 validation images of every class. "
        f"Every tuning starts from the trained head and makes {STEPS} steps of AdamW with {BATCH} images; OFT with blocks "
        f"of {BLOCK} and LoRA of rank {RANK} on every linear layer of the blocks, full tuning on all weights, renormalized "
        "after each step as nGPT demands. Old classes: the old head on the tuned backbone, and the nearest mean of "
        "40 training images a class by the tuned backbone. The seeds share the old classes' images, so their intervals "
        "are about the draws of new classes, not about other networks; three seeds make them wide, and one has none. "
        "Times were taken on a busy machine."
    )


def _draw(rows: Rows, seeds: list[int]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    for method, colour in zip(METHODS, ("tab:blue", "tab:orange", "tab:grey"), strict=True):
        for phase, style in (("test", "-"), ("gentler", ":")):
            runs = [found(rows, method, phase, seed) for seed in seeds]
            if not all(runs):
                continue
            moved = [
                [(p["new"] - s["new"], p["old"] - s["old"]) for p in (s, *run["curve"])]
                for run, s in zip(runs, (_start(rows, seed) for seed in seeds), strict=True)
            ]
            means = [
                tuple(statistics.fmean(v) for v in zip(*points, strict=True)) for points in zip(*moved, strict=True)
            ]
            label = method if phase == "test" else f"{method}, a third of the rate"
            axes.plot(*zip(*means, strict=True), style, marker="o", ms=3, color=colour, label=label)
    axes.set_xlabel("gained on new classes, points")
    axes.set_ylabel("changed on old classes, points")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE, dpi=110)
