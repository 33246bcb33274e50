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
"""


class Aim(NamedTuple):
    """At most ``most`` in the column of the report's row that has all of ``cells``."""

    work: str
    report: str
    cells: tuple[str, ...]
    column: str
    most: float
    unit: str = ""


def heads(classes: str, most: dict[str, float]) -> list[Aim]:
    """Time of heads against dense cross-entropy."""
    report = "heads_1M" if classes == "1M" else "heads"
    return [Aim(f"{name}, {classes} classes", report, (classes, name), "time / floor", m) for name, m in most.items()]


AIMS: dict[str, list[Aim]] = {
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
    "Package": [Aim("import, against `import torch`", "import_time", ("import torch, hypersphere",), "ratio", 1.15)],
}  # fmt: skip


def measured(aim: Aim) -> tuple[float, str] | None:
    """The first number of the aim's cell and the date of its report; None if it was not recorded."""
    path = HERE / "reports" / f"{aim.report}.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
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
