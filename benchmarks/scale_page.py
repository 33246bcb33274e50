"""Write ``docs/scale.md``: the cost of heads and galleries of any size, estimated from the recorded reports.

python benchmarks/scale_page.py            # run after recording parallel_heads, galleries or gallery_scale
"""

import json
import math
import pathlib
import string
from typing import Any, NamedTuple

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parent / "docs" / "scale.md"
DIM = 512
PASSES = {"all": 14, "0.1": 26}
"""Reads and writes per row of the weight in a step of the head and of RowSGD with momentum, counted in the code."""
SIZES = {"100k": 1e5, "1M": 1e6}
POWERS = {5: "10⁵", 6: "10⁶", 7: "10⁷", 8: "10⁸", 9: "10⁹"}

FUNCTION = string.Template("""
def step(classes, devices, rate=1.0, passes=14, batch=128, d=512, states=1, flops=$flops, memory=$bytes, link=None):
    samples = batch * devices
    rows = (classes - classes * (1 - 1 / classes) ** samples * (1 - rate)) / devices
    kept = classes / devices * d * 4 * (1 + states + (1 if rate == 1 else 5 * rate)) + 8 * samples * d * 4
    travels = (devices - 1) / devices * samples * 4 * (2 * d + 4 * 2)
    seconds = rows * (6 * samples * d / flops + passes * 4 * d / memory) + (travels / link if link else 0)
    return f"{kept / 1e9:.2f} GB, {travels / 1e6:.0f} MB, {seconds:.3f} s"
""")


class Constants(NamedTuple):
    """The measured speed of a step: flop/s of the products, bytes/s of the passes through the rows."""

    flops: float
    bytes: float


def read_report(name: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the conditions and the rows of a report."""
    found = json.loads((HERE / "reports" / f"{name}.json").read_text(encoding="utf-8"))
    return found["conditions"], [dict(zip(found["header"], row, strict=True)) for row in found["rows"]]


def find_row(rows: list[dict[str, Any]], **cells: object) -> dict[str, Any]:
    """Return the only row with these cells; underscores in names stand for spaces."""
    expected = {name.replace("_", " "): value for name, value in cells.items()}
    (row,) = [row for row in rows if expected.items() <= row.items()]
    return row


def count_sampled(classes: float, samples: float, rate: float) -> float:
    """Return the expected number of classes in a step: those of the batch, and each other class with probability ``rate``."""
    others = classes * (1 - 1 / classes) ** samples
    return classes - others * (1 - rate)


def fit_constants(rows: list[dict[str, Any]], part: str) -> Constants:
    """Fit the constants: the part that grows with the batch at 100k classes is products, the rest at 1M passes through the rows."""
    rate = 1.0 if part == "all" else float(part)

    def each(size: str, batch: int) -> float:  # CPU seconds per class of a step
        row = find_row(rows, C=size, processes=1, batch=batch, classes_drawn=part)
        return float(row["CPU s"]) / count_sampled(SIZES[size], batch, rate)

    slope = (each("100k", 1024) - each("100k", 128)) / (1024 - 128)
    return Constants(6 * DIM / slope, PASSES[part] * 4 * DIM / (each("1M", 128) - 128 * slope))


def estimate_seconds(
    classes: float, devices: int, part: str, at: Constants, link: float | None = None, batch: int = 128
) -> float:
    """Estimate the seconds of a step: products, passes through the rows, and communication."""
    samples = batch * devices
    rows = count_sampled(classes, samples, 1.0 if part == "all" else float(part)) / devices
    moved = estimate_traffic(devices, batch) / link if link else 0.0
    return rows * (6 * samples * DIM / at.flops + PASSES[part] * 4 * DIM / at.bytes) + moved


def estimate_traffic(devices: int, batch: int = 128) -> float:
    """Estimate the bytes that each device sends: gathered features, scattered gradients, four all-reduced vectors."""
    return (devices - 1) / devices * batch * devices * 4 * (2 * DIM + 4 * 2)


def estimate_memory(classes: float, devices: int, part: str, batch: int = 128) -> float:
    """Estimate the bytes on a device: weight, momentum, gradient (or copies of sampled rows), and eight tensors of the batch."""
    rate = 1.0 if part == "all" else float(part)
    copies = 3.0 if part == "all" else 2 + 5 * rate
    return classes / devices * DIM * 4 * copies + 8 * batch * devices * DIM * 4


def format_number(value: float) -> str:
    """Format a number with two or three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def format_heads(here: dict[str, Constants]) -> list[str]:
    """Return a table of memory, traffic and time for 10⁶ to 10⁸ classes on 1 to 1,024 devices."""
    device = Constants(1e14, 2e12)
    lines = [
        "| classes | devices | memory, all (GB) | memory, a tenth (GB) | traffic (MB) | this thread, all (s) | a tenth (s) | "
        "a fast device, all (ms) | a tenth (ms) |",
        "|" + "---|" * 9,
    ]
    for power in (6, 7, 8):
        for devices in (1, 8, 64, 256, 1024):
            cells = [POWERS[power], f"{devices:,}"]
            cells += [format_number(estimate_memory(10**power, devices, part) / 1e9) for part in PASSES]
            cells.append(format_number(estimate_traffic(devices) / 1e6) if devices > 1 else "0")
            cells += [format_number(estimate_seconds(10**power, devices, part, here[part])) for part in PASSES]
            cells += [format_number(1e3 * estimate_seconds(10**power, devices, part, device, 25e9)) for part in PASSES]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def format_measurements(rows: list[dict[str, Any]], here: dict[str, Constants]) -> list[str]:
    """Return a table of measured values and those of the formulas."""
    lines = [
        "| classes | processes | batch | classes sampled | CPU s, measured | formula | peak MB, measured | formula |",
        "|" + "---|" * 8,
    ]
    for row in rows:
        classes, part, processes, batch = (
            SIZES[row["C"]],
            *(row[n] for n in ("classes drawn", "processes", "batch")),
        )
        said = estimate_seconds(classes, processes, part, here[part], batch=batch // processes)
        kept = estimate_memory(classes, processes, part, batch // processes) / 1e6
        measured = [row["CPU s"], f"{said:.3f}", f"{float(row['peak MiB']) * 1.048576:,.0f}", f"{kept:,.0f}"]
        lines.append("| " + " | ".join([row["C"], str(processes), str(batch), part, *measured]) + " |")
    return lines


def format_galleries() -> list[str]:
    """Return a table of measured galleries: a file, a server, faiss."""
    lines = [
        "| templates | where | enrol | first identify | after one enrolment | 1 probe | 256 probes |",
        "|" + "---|" * 7,
    ]
    for count in (100_000, 1_000_000):
        for row in read_report(f"galleries_{count}")[1]:
            cells = [row[n] for n in ("enrol, s", "first identify, s")]
            cells = [c if c == "–" else c.split()[0] + " s" for c in cells]
            late, one, many = (
                str(row[n]).split()[0] for n in ("identify after one enrolment, ms", "1 probe, ms", "256 probes, s")
            )
            cells += ["–" if late == "–" else f"{late} ms", f"{float(one):.0f} ms", f"{many} s"]
            lines.append("| " + " | ".join([f"{count:,}", row["way"], *cells]) + " |")
    return lines


def format_sizes() -> list[str]:
    """Return a table of galleries of 10⁵ to 10⁹ templates, estimated from a small one."""
    rows = {row["search"]: row for row in read_report("gallery_scale")[1]}
    exact, eight, graph = (rows[name] for name in ("exact, float32", "8 bits", "HNSW, 32 links"))
    lines = [
        "| templates | exact: disk or memory | one probe | each of 256 | 8 bits: memory | one probe | HNSW: memory | build | one probe |",
        "|" + "---|" * 9,
    ]
    base = 20_000
    for power in range(5, 10):
        n = 10**power
        grown = float(graph["1 probe, ms"]) * 1e-3 * math.log2(n) / math.log2(base)
        cells = [
            POWERS[power],
            format_bytes(n * exact["bytes a template"]),
            format_duration(n * float(exact["the same, ns a template"]) * 1e-9),
            format_duration(n / base * float(exact["1 of 256 probes, ms"]) * 1e-3),
            format_bytes(n * eight["bytes a template"]),
            format_duration(n * float(eight["the same, ns a template"]) * 1e-9),
            format_bytes(n * graph["bytes a template"]),
            format_duration(n * float(graph["build, µs a template"]) * 1e-6 * math.log2(n) / math.log2(base)),
            format_duration(grown),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def format_bytes(count: float) -> str:
    """Format bytes as GB or TB."""
    return f"{format_number(count / 1e12)} TB" if count >= 1e12 else f"{format_number(count / 1e9)} GB"


def format_duration(time: float) -> str:
    """Format seconds in a suitable unit."""
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if time >= 1.5 * length or (unit == "s" and time >= 0.1):
            return f"{format_number(time / length)} {unit}"
    return f"{format_number(1e3 * time)} ms"


def format_page() -> str:
    """Return the whole page."""
    conditions, rows = read_report("parallel_heads")
    here = {part: fit_constants(rows, part) for part in PASSES}
    whole, tenth = (find_row(rows, C="1M", processes=1, batch=128, classes_drawn=part) for part in PASSES)
    small = {row["search"]: row for row in read_report("gallery_scale")[1]}
    values = {
        "conditions": conditions.split(", turns")[0],
        "flops_all": f"{here['all'].flops / 1e9:.0f}",
        "bytes_all": f"{here['all'].bytes / 1e9:.1f}",
        "flops_drawn": f"{here['0.1'].flops / 1e9:.0f}",
        "bytes_drawn": f"{here['0.1'].bytes / 1e9:.1f}",
        "factor_all": f"{whole['peak / weight']:.2f}",
        "factor_drawn": f"{tenth['peak / weight']:.2f}",
        "heads": "\n".join(format_heads(here)),
        "checked": "\n".join(format_measurements(rows, here)),
        "galleries": "\n".join(format_galleries()),
        "sizes": "\n".join(format_sizes()),
        "recall": small["HNSW, 32 links"]["recall of 10"],
        "recall_first": small["HNSW, 32 links"]["recall of the first"],
        "recall_eight": small["8 bits"]["recall of 10"],
        "example": format_example(here["all"]),
    }
    return string.Template((HERE / "scale_page.md").read_text(encoding="utf-8")).substitute(values)


def format_example(at: Constants) -> str:
    """Return a doctest: the formulas as a function with the measured constants, and two calls with their output."""
    source = FUNCTION.substitute(flops=f"{at.flops / 1e9:.0f}e9", bytes=f"{at.bytes / 1e9:.1f}e9")
    made: dict[str, Any] = {}
    exec(source, made)
    lines = source.strip().splitlines()
    text = [">>> " + lines[0], *("... " + line for line in lines[1:])]
    for line in (
        "step(10**6, 1), step(10**6, 8)",
        "step(10**8, 64, rate=0.1, passes=26, flops=1e14, memory=2e12, link=25e9)",
    ):
        text += [">>> " + line, repr(eval(line, made))]
    return "\n".join(text)


if __name__ == "__main__":
    PAGE.write_text(format_page(), encoding="utf-8")
