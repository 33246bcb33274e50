"""Write ``benchmarks/README.md``: for each question, the performance goals and the latest recorded measurements.

python benchmarks/aims.py            # run after recording a benchmark
"""

import json
import pathlib
import re
from typing import NamedTuple

HERE = pathlib.Path(__file__).parent

INTRODUCTION = """# Benchmarks

Each script answers one question. Times are the least CPU time of several interleaved rounds, divided by that of a baseline in the
same run; lower is better. Memory is measured in a fresh process. `--record` writes a dated report with shapes and threads into
`reports/`. A row below summarizes several measurements; its reports list them all. `python benchmarks/aims.py` writes this page.

The solver's results for Tammes' and Thomson's problems are in [solver_tammes_1](reports/solver_tammes_1.md) and
[solver_thomson_1](reports/solver_thomson_1.md). Small and everyday work, with profiles,
is in [everyday](reports/everyday.md); retrieval, verification and exact search in [evaluation](reports/evaluation.md); the figures of
the README in [readme](reports/readme.md).
"""


class Aim(NamedTuple):
    """A goal: the row of ``report`` that contains all ``cells`` has at most ``most`` in ``column``.

    ``floor`` names a row of the same report that measures the work without this library. If the floor is above the goal, the
    page says so.
    """

    work: str
    report: str
    cells: tuple[str, ...]
    column: str
    most: float
    unit: str = ""
    floor: tuple[str, ...] = ()


def list_heads(reports: tuple[str, ...], classes: str, names: tuple[str, ...], most: float) -> list[Aim]:
    """List goals for the time of heads relative to dense cross-entropy."""
    return [Aim(name, report, (classes, name), "time / floor", most) for report in reports for name in names]


def list_operators(names: tuple[str, ...], mode: str, most: float) -> list[Aim]:
    """List goals for the time of layers relative to ``nn.Conv2d`` at three sizes, with one thread and with two."""
    sizes = [f"{size} {mode}" for size in ("64@32²", "128@16²", "256@8²")]
    reports = (f"operators_{mode}_1_thread", f"operators_{mode}")
    return [
        Aim(f"{name}, {size}", report, (name,), size, most) for report in reports for name in names for size in sizes
    ]


def list_modes(names: tuple[str, ...], most: float) -> list[Aim]:
    """List goals for the time of layers in other modes relative to ``nn.Conv2d`` in the same mode."""
    modes = ("channels-last", "bf16 autocast", "channels-last, bf16 autocast")
    return [Aim(f"{name}, {mode}", "operators_modes_1_thread", (name,), mode, most) for name in names for mode in modes]


def list_maps(name: str, size: str, most: float) -> list[Aim]:
    """List goals for the time of an orthogonal map relative to its floor, with one thread and with two."""
    return [
        Aim(f"{threads} thread{'s' * (threads > 1)}", f"orthogonal_aims_{threads}", (name, size), "of the floor", most)
        for threads in (1, 2)
    ]


COSINE, ANGLES = (
    ("SphereConv2d",),
    ("SphereConv2d, linear", "SphereConv2d, sigmoid", "SphereConv2d, square cosine"),
)
RADIUS = ("TanhConv2d, learned radius",)
CLASSIC = ("Softmax", "LSoftmax", "WSoftmax", "SSoftmax", "ASoftmax", "AMSoftmax", "ArcFace")
COMMON = ("Softmax", "SSoftmax", "ASoftmax", "AMSoftmax", "ArcFace")
LATER = ("SphereFaceR", "AdaFace", "MagFace", "ElasticFace", "AdaCos", "UniFace", "CurricularFace", "MVSoftmax")
ONE, TWO = "heads_10_100_1k_1_thread", "heads_10_1k"
SQLITE = ("file (SQLite)",)

AIMS: dict[str, dict[str, list[Aim]]] = {
    "How long do heads take, relative to dense cross-entropy? (batch 128, d 512)": {
        "softmax family, 10 classes": list_heads((ONE,), "10", CLASSIC, 1.05) + list_heads((TWO,), "10", COMMON, 1.05),
        "softmax family, 100 classes": list_heads((ONE,), "100", CLASSIC, 1.05),
        "softmax family, 1,000 classes": list_heads((ONE,), "1k", CLASSIC, 1.05) + list_heads((TWO,), "1k", COMMON, 1.05),
        "later heads, 1,000 classes": list_heads((ONE,), "1k", LATER, 1.1)
        + list_heads((TWO,), "1k", ("CurricularFace", "AdaFace"), 1.1),
        "GA-Softmax, 1,000 classes": list_heads((ONE, TWO), "1k", ("GASoftmax",), 1.3),
        "ArcFace with 3 sub-centers, 1,000 classes": list_heads((ONE, TWO), "1k", ("ArcFace k=3",), 1.8),
        "ArcFace, CosFace and CurricularFace, 100,000 classes": list_heads(("heads_100k",), "100k", ("ArcFace", "AMSoftmax"), 0.5)
        + list_heads(("heads_100k_1_thread",), "100k", ("CurricularFace",), 0.5),
        "ArcFace with 3 sub-centers, 100,000 classes": list_heads(("heads_100k",), "100k", ("ArcFace k=3",), 1.25),
    },
    "How long do operators take, relative to nn.Conv2d?": {
        "SphereConv2d, eager": list_operators(COSINE, "eager", 1.1),
        "linear, sigmoid and square-cosine angles, eager": list_operators(ANGLES, "eager", 1.3),
        "TanhConv2d with a learned radius, eager": list_operators(RADIUS, "eager", 1.25),
        "SphereConv2d, all angles, compiled": list_operators(COSINE + ANGLES, "compiled", 1.1),
        "TanhConv2d with a learned radius, compiled": list_operators(RADIUS, "compiled", 1.25),
        "CNN-9 of SphereConv, compiled": [
            Aim(name, "operators_network_1_thread", (name,), "compiled", 1.08)
            for name in ("CNN-9 of SphereConv", "CNN-9 of SphereConv, linear")
        ],
        "SphereConv2d, bf16 and channels-last": list_modes(COSINE, 1.1),
        "other angles, bf16 and channels-last": list_modes(ANGLES, 1.3),
        "learned radius, bf16 and channels-last": list_modes(RADIUS, 1.25),
        "SphereConv2d, peak memory": [
            Aim("memory", "operators_memory_1_thread", ("SphereConv2d",), "of nn.Conv2d", 1.25)
        ],
    },
    "How long do orthogonal maps take, relative to the fastest known method?": {
        "layer R·V, 1152→128": list_maps("layer R·V", "1152→128", 1.1),
        "Cayley, n = 64": list_maps("cayley", "n = 64", 1.1),
        "Cayley, n = 256": list_maps("cayley", "n = 256", 1.1),
        "Löwdin, n = 576": list_maps("lowdin", "n = 576", 4.0),
        "exponential, n = 576": list_maps("exponential", "n = 576", 5.0),
        "Newton–Schulz, n = 576": list_maps("newton_schulz", "n = 576", 8.0),
    },
    "How long does a fine-tuning step take, relative to peft's OFT?": {
        f"OFT, {work}": [Aim("OFT", report, ("OFT, block 32",), "of peft's OFT", 0.8, "", ("nothing but the positions",))]
        for work, report in (
            ("two layers of ViT-base", "orthogonal_finetune_vit_oft"),
            ("one layer of BERT-base", "orthogonal_finetune_bert"),
        )
    },
    "What share of a CNN-9 training step do regularizers take?": {
        label: [
            Aim(f"{threads} thread{'s' * (threads > 1)}", f"energy_training_{threads}", (name,), "of a step", most, " %")
            for threads in (1, 2)
        ]
        for label, name, most in (("Group CoMHE", "Group CoMHE", 3.0), ("AP-CoMHE, unrolled", "AP-CoMHE (unrolled)", 4.0))
    },
    "How long does the energy of a 30,522 × 768 table take? (wall-clock)": {
        f"{threads} thread{'s' * (threads > 1)}": [Aim("energy", "energy_table", (f"{threads}",), "wall-clock s", 20.0, " s")]
        for threads in (1, 2)
    },
    "How long does a gallery of 100,000 × 512 take? (CPU time)": {
        "enroll all": [Aim("enroll", "galleries_100000", SQLITE, "enrol, s", 10.0, " s")],
        "first identification": [Aim("identify", "galleries_100000", SQLITE, "first identify, s", 1.0, " s")],
        "identification after one enrollment": [
            Aim("identify", "galleries_100000", SQLITE, "identify after one enrolment, ms", 50.0, " ms")
        ],
    },
    "How long do the package, its data and its tests take?": {
        "import, relative to `import torch`": [Aim("import", "import_time", ("import torch, hypersphere",), "ratio", 1.15)],
        "demo, wall-clock time": [Aim("demo", "demo", ("letters",), "wall-clock s", 60.0, " s")],
        "reading Tiny-ImageNet from its cache, CPU time": [
            Aim("reading", "reading", ("Tiny-ImageNet, 100,000 training images",), "afterwards, CPU s", 2.0, " s")
        ],
        "`make test`, CPU time": [Aim("tests", "suite", ("everything",), "CPU min", 14.0, " min")],
    },
}  # fmt: skip


def read_measurement(aim: Aim) -> float | None:
    """Return the first number in the goal's cell, or None if the report or its column does not exist."""
    path = HERE / "reports" / f"{aim.report}.json"
    if not path.exists():
        return None
    report = json.loads(path.read_text(encoding="utf-8"))
    if aim.column not in report["header"]:
        return None
    column = report["header"].index(aim.column)
    for row in report["rows"]:
        if set(aim.cells) <= {str(cell) for cell in row}:
            number = re.search(r"-?\d+(?:\.\d+)?", str(row[column]).replace(",", ""))
            if number is not None:
                return float(number[0])
    raise ValueError(f"{path.name} has no row {aim.cells} with a number in {aim.column!r}")


def format_row(label: str, aims: list[Aim]) -> str:
    """Return the line of the table that summarizes ``aims``, which share one goal."""
    goal, unit = f"≤ {aims[0].most:g}{aims[0].unit}", aims[0].unit
    values = {aim: value for aim in aims if (value := read_measurement(aim)) is not None}
    if not values:
        return f"| {label} | {goal} | not measured | – | – |"
    low, high = min(values.values()), max(values.values())
    measured = f"{low:.3g}{unit}" if low == high else f"{low:.3g}–{high:.3g}{unit}"
    missed = [f"{aim.work} {value:.3g}" for aim, value in values.items() if value > aim.most]
    if len(values) == 1:
        met = "**no**" if missed else "yes"
    else:
        met = f"{len(values) - len(missed)} of {len(values)}"
        met += f"; not {', '.join(missed)}" if 0 < len(missed) <= 2 else ""
    for aim in values:
        floor = read_measurement(aim._replace(cells=aim.floor)) if aim.floor else None
        if floor is not None and floor > aim.most:
            met += f"; the frozen network alone takes {floor:.3g}"
    links = ", ".join(f"[{report}](reports/{report}.md)" for report in dict.fromkeys(aim.report for aim in values))
    return f"| {label} | {goal} | {measured} | {met} | {links} |"


def format_page() -> str:
    """Return the page as Markdown."""
    parts = [INTRODUCTION]
    for question, rows in AIMS.items():
        parts += [f"## {question}", "", "| work | goal | measured | goal met | reports |", "|---|---|---|---|---|"]
        parts += [*(format_row(label, aims) for label, aims in rows.items()), ""]
    return "\n".join(parts)


if __name__ == "__main__":
    (HERE / "README.md").write_text(format_page(), encoding="utf-8")
