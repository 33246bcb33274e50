"""The table of all aims with the last measurement beside each: writes ``benchmarks/README.md`` from the recorded reports.

python benchmarks/aims.py            # after a benchmark was recorded
"""

import json
import pathlib
import re
from typing import NamedTuple

HERE = pathlib.Path(__file__).parent

INTRODUCTION = """# Benchmarks

One script a question. Speed is a ratio to a floor within one interleaved run (the least CPU time of several rounds), memory is taken in a
fresh process; `--record` writes a dated report with shapes and threads into `reports/`. `python benchmarks/aims.py` writes this page.

Tammes' and Thomson's problems have a line for every number of points: [solver_tammes_1](reports/solver_tammes_1.md),
[solver_thomson_1](reports/solver_thomson_1.md).
"""


class Aim(NamedTuple):
    """At most ``most`` in the column of the report's row that has all of ``cells``.

    ``floor`` names a row of the same report: what the work costs before any of ours is done. If that is above the aim,
    the page says so.
    """

    work: str
    report: str
    cells: tuple[str, ...]
    column: str
    most: float
    unit: str = ""
    floor: tuple[str, ...] = ()


def heads(report: str, classes: str, most: dict[str, float]) -> list[Aim]:
    """Time of heads against dense cross-entropy."""
    return [Aim(f"{name}, {classes} classes", report, (classes, name), "time / floor", m) for name, m in most.items()]


def operators(most: dict[str, float]) -> list[Aim]:
    """Time of layers against nn.Conv2d, at three sizes, on one thread and on two."""
    sizes = ("64@32² eager", "128@16² eager", "256@8² eager")
    return [
        Aim(f"{name}, {size}", f"operators_eager{threads}", (name,), size, m)
        for threads in ("_1_thread", "")
        for name, m in most.items()
        for size in sizes
    ]


ANGLES = ("SphereConv2d", "SphereConv2d, linear", "SphereConv2d, sigmoid", "SphereConv2d, square cosine")
RADIUS = "TanhConv2d, learned radius"


def compiled_operators() -> list[Aim]:
    """Time of compiled layers against the compiled nn.Conv2d, and of compiled networks; memory of the eager one."""
    layers, net = ("operators_compiled_1_thread", "operators_compiled"), "operators_network_1_thread"
    sizes = ("64@32² compiled", "128@16² compiled", "256@8² compiled")
    nets = ("CNN-9 of SphereConv", "CNN-9 of SphereConv, linear")
    return [
        Aim("SphereConv2d, memory", "operators_memory_1_thread", ("SphereConv2d",), "of nn.Conv2d", 1.25),
        *[Aim(f"{name}, {size}", layer, (name,), size, 1.10) for layer in layers for name in ANGLES for size in sizes],
        *[Aim(f"{RADIUS}, {size}", layer, (RADIUS,), size, 1.25) for layer in layers for size in sizes],
        *[Aim(f"{name}, compiled", net, (name,), "compiled", 1.08) for name in nets],
    ]


def operators_in_modes(most: dict[str, float]) -> list[Aim]:
    """Time of layers against nn.Conv2d in the same mode; the aims are those of the usual one."""
    report = "operators_modes_1_thread"
    modes = ("channels-last", "bf16 autocast", "channels-last, bf16 autocast")
    return [Aim(f"{name}, {mode}", report, (name,), mode, m) for name, m in most.items() for mode in modes]


OPERATORS = dict.fromkeys(ANGLES, 1.30) | {"SphereConv2d": 1.10, RADIUS: 1.25}
PLAIN = ("Softmax", "LSoftmax", "WSoftmax", "SSoftmax", "ASoftmax", "AMSoftmax", "ArcFace")
FIELD = ("SphereFaceR", "AdaFace", "MagFace", "ElasticFace", "AdaCos", "UniFace", "CurricularFace", "MVSoftmax")
SMALL = "heads_10_100_1k_1_thread"

AIMS: dict[str, list[Aim]] = {
    "Heads against dense cross-entropy (batch 128, d 512)": [
        *heads(SMALL, "10", dict.fromkeys(PLAIN, 1.05)),
        *heads(SMALL, "100", dict.fromkeys(PLAIN, 1.05)),
        *heads(SMALL, "1k", dict.fromkeys(PLAIN, 1.05) | {"GASoftmax": 1.3, "ArcFace k=3": 1.8} | dict.fromkeys(FIELD, 1.10)),
        *heads("heads_10_1k", "10", dict.fromkeys(("Softmax", "SSoftmax", "ASoftmax", "AMSoftmax", "ArcFace"), 1.05)),
        *heads("heads_10_1k", "1k", dict.fromkeys(("Softmax", "SSoftmax", "ASoftmax", "AMSoftmax", "ArcFace"), 1.05)),
        *heads("heads_10_1k", "1k", {"GASoftmax": 1.3, "ArcFace k=3": 1.8, "CurricularFace": 1.10, "AdaFace": 1.10}),
        *heads("heads_100k", "100k", {"ArcFace": 0.5, "AMSoftmax": 0.5, "ArcFace k=3": 1.25}),
        *heads("heads_100k_1_thread", "100k", {"CurricularFace": 0.5}),
    ],
    "Operators against nn.Conv2d": [*operators(OPERATORS), *compiled_operators()],
    "Operators against nn.Conv2d in other modes, 64@32² (the aims are those of the usual mode)": operators_in_modes(OPERATORS),
    "Orthogonal maps against their floors": [
        Aim(f"{name}, {size}", f"orthogonal_aims_{threads}", (name, size), "of the floor", most)
        for threads in (1, 2)
        for name, size, most in (
            ("layer R·V", "1152→128", 1.10),
            ("cayley", "n = 64", 1.10),
            ("cayley", "n = 256", 1.10),
            ("lowdin", "n = 576", 4.0),
            ("exponential", "n = 576", 5.0),
            ("newton_schulz", "n = 576", 8.0),
        )
    ],
    "Fine-tuning against peft's OFT (a step)": [
        Aim(f"OFT, {work}", report, ("OFT, block 32",), "of peft's OFT", 0.8, "", ("nothing but the positions",))
        for work, report in (
            ("two layers of ViT-base", "orthogonal_finetune_vit_oft"),
            ("one layer of BERT-base", "orthogonal_finetune_bert"),
        )
    ],
    "Regularisers, share of a CNN-9 step": [
        Aim(name.replace(" (unrolled)", ", unrolled"), f"energy_training_{threads}", (name,), "of a step", most, " %")
        for threads in (1, 2)
        for name, most in (("Group CoMHE", 3.0), ("AP-CoMHE (unrolled)", 4.0))
    ],
    "Energy of a table of 30,522 × 768 (wall-clock)": [
        Aim(f"{threads} thread{'s' * (threads > 1)}", "energy_table", (f"{threads}",), "wall-clock s", 20.0, " s") for threads in (1, 2)
    ],
    "Datasets (CPU seconds from the second reading on)": [
        Aim("Tiny-ImageNet", "reading", ("Tiny-ImageNet, 100,000 training images",), "afterwards, CPU s", 2.0, " s"),
    ],
    "Galleries of 100,000 × 512 (CPU time)": [
        Aim("enrol", "galleries_100000", ("file (SQLite)",), "enrol, s", 10.0, " s"),
        Aim("first identify", "galleries_100000", ("file (SQLite)",), "first identify, s", 1.0, " s"),
        Aim(
            "identify after an enrolment", "galleries_100000", ("file (SQLite)",), "identify after one enrolment, ms", 50.0, " ms"
        ),
    ],
    "Package": [
        Aim("import, against `import torch`", "import_time", ("import torch, hypersphere",), "ratio", 1.15),
        Aim("demo beside two busy loops, against alone", "demo", ("beside 2 busy loops",), "ratio", 2.0),
        Aim("`make test`, CPU time", "suite", ("everything",), "CPU min", 14.0, " min"),
    ],
}  # fmt: skip


def measured(aim: Aim) -> tuple[float, str] | None:
    """The first number of the aim's cell and the date of its report; None if it, or its column, was not recorded."""
    path = HERE / "reports" / f"{aim.report}.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    if aim.column not in found["header"]:
        return None
    at = found["header"].index(aim.column)
    for row in found["rows"]:
        if set(aim.cells) <= {str(cell) for cell in row}:
            number = re.search(r"-?\d+(?:\.\d+)?", str(row[at]).replace(",", ""))
            if number is not None:
                date, threads = re.findall(r"[\d-]{10}|\d+ threads", found["conditions"])[:2]
                return float(number[0]), f"{date}, {threads}"
    raise ValueError(f"{path.name} has no row {aim.cells} with a number in {aim.column!r}")


def table(aims: list[Aim]) -> list[str]:
    """A row an aim."""
    lines = ["| work | aim | measured | met | when | report |", "|---|---|---|---|---|---|"]
    for aim in aims:
        link = f"[{aim.report}](reports/{aim.report}.md)"
        found = measured(aim)
        if found is None:
            lines.append(f"| {aim.work} | ≤ {aim.most:g}{aim.unit} | – | not measured | – | – |")
            continue
        value, when = found
        met = "yes" if value <= aim.most else "**no**"
        least = measured(aim._replace(cells=aim.floor)) if aim.floor else None
        if least is not None and least[0] > aim.most:
            met += f"; the aim is below what the frozen network alone costs ({least[0]:.3g})"
        lines.append(f"| {aim.work} | ≤ {aim.most:g}{aim.unit} | {value:.3g}{aim.unit} | {met} | {when} | {link} |")
    return lines


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, aims in AIMS.items():
        parts += [f"## {title}", "", *table(aims), ""]
    return "\n".join(parts)


if __name__ == "__main__":
    (HERE / "README.md").write_text(page(), encoding="utf-8")
