"""Features on the sphere, projected to three dimensions if they have more."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..evaluation import Evidence
from ..geometry import normalize
from ..plots.scatter import best_view, eye_direction
from .page_parts import Block, Chart, Note, Section, Sheet, arrange_charts, key_of, plain
from .runs import RunRecord

MOST_CLASSES = 60  # each is a trace of its own and a switch
MAX_LABELED = 20
LONGEST = 18  # characters of a name on the sphere; the list beside it has the whole
MOST_SPHERES = 4  # browsers allow a page few drawings in space


def sphere_section(runs: Sequence[RunRecord], sheets: dict[str, Sheet]) -> Section | None:
    """Return a sphere for each run that kept features; None where none did."""
    kept = [(i, run, run.evidence) for i, run in enumerate(runs) if run.evidence is not None]
    kept = [(i, run, evidence) for i, run, evidence in kept if evidence.features.shape[1] > 1 and len(evidence.labels)]
    if not kept:
        return None
    alone = len(kept) == 1
    drawn = [_sphere(i, run, evidence, sheets, alone) for i, run, evidence in kept[:MOST_SPHERES]]
    blocks: list[Block] = [*arrange_charts(drawn)]
    if len(kept) > MOST_SPHERES:
        names = ", ".join(run.name for _, run, _ in kept[MOST_SPHERES:])
        blocks.append(Note(f"A page holds {MOST_SPHERES} spheres; that of {names} is not drawn."))
    return Section("sphere", "Features on the sphere", blocks)


def in_space(features: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n 3"], float]:
    """Return features as points of the unit sphere in space, and the share of their squared length that this keeps.

    The directions are projected onto the three axes that keep most of Σ⟨x̂, axis⟩² (the leading right singular vectors of
    the unit features, without centering, because angles are seen from the origin) and brought back to length one. In
    two and three dimensions nothing is lost.

    >>> points, share = in_space(torch.eye(5)[:3])
    >>> points.shape, round(share, 6)
    (torch.Size([3, 3]), 1.0)
    """
    unit = normalize(features.detach().double().cpu())
    if unit.shape[1] <= 3:
        return torch.nn.functional.pad(unit, (0, 3 - unit.shape[1])), 1.0
    if 3 <= len(unit) < unit.shape[1]:  # the squares of d dimensions take d³ operations: seconds for a joined embedder
        _, lengths, rows = torch.linalg.svd(unit, full_matrices=False)
        values, axes = lengths.square().flip(0), rows[:3].T
    else:
        values, axes = torch.linalg.eigh(unit.T @ unit)
        axes = axes.flip(1)[:, :3]
    axes = axes * axes.sum(0).sign().where(axes.sum(0) != 0, torch.ones(3, dtype=axes.dtype))  # the sign is arbitrary
    points = unit @ axes
    share = float(values.flip(0)[:3].sum() / values.sum())
    return normalize(points), share


def _sphere(place: int, run: RunRecord, evidence: Evidence, sheets: dict[str, Sheet], alone: bool) -> Chart:
    points, share = in_space(evidence.features)
    shown = evidence.labels.unique()[:MOST_CLASSES].tolist()
    means = _means(evidence, points)
    traces: list[dict[str, Any]] = [_rings()]
    classes = []
    unit = normalize(evidence.features.double())
    for tint, label in enumerate(shown):
        name = str(evidence.classes[label])
        mine = (evidence.labels == label).nonzero().flatten()
        x, y, z = points[mine].T.tolist()
        look = {"size": 4 if len(points) > 600 else 5, "opacity": 1, "line": {"width": 0}}
        common = {"type": "scatter3d", "x": x, "y": y, "z": z, "name": plain(name), "of": label, "tint": tint}
        traces.append({**common, "mode": "markers", "marker": look, "customdata": mine.tolist(), "hoverinfo": "none"})
        at = means[label].tolist() if len(shown) <= MAX_LABELED else None
        classes.append(
            {
                "name": name,
                "label": plain(name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"),
                "of": label,
                "tint": tint,
                "at": at,
            }
        )
    sheet = sheets.get(f"run{place}")
    extra = {
        "classes": classes,
        "eye": (1.9 * eye_direction(*best_view(points.float(), evidence.labels))).tolist(),
        "samples": _samples(evidence, unit),
        "sheet": None if sheet is None else {"name": f"run{place}", "columns": sheet.columns},
    }
    dim = evidence.features.shape[1]
    count = int(sum((evidence.labels == label).sum() for label in shown))
    caption = f"{count:,} samples of {len(shown)} classes" if alone else f"{run.name}: {count:,} samples"
    if dim > 3:
        caption += f", {dim} dimensions projected to 3 ({100 * share:.0f} % of the squared length kept)"
    summary = f"Features of {run.name} as points of a sphere, {len(shown)} classes. The numbers are in the table below."
    return Chart(
        key_of("sphere", place), caption, summary, traces, kind="sphere", extra=extra, size="full" if alone else "half"
    )


def _means(evidence: Evidence, points: Float[Tensor, "n 3"]) -> dict[int, Float[Tensor, "3"]]:
    return {
        label: normalize(points[evidence.labels == label].mean(0, keepdim=True))[0]
        for label in evidence.labels.unique().tolist()
    }


def _samples(evidence: Evidence, unit: Float[Tensor, "n d"]) -> list[dict[str, Any]]:
    """Return the label of each point: its class, its name, and its angle to the center of its class."""
    owners, place = evidence.labels.unique(return_inverse=True)
    means = normalize(unit.new_zeros(len(owners), unit.shape[1]).index_add_(0, place, unit))
    degrees = (unit * means[place]).sum(1).clamp(-1, 1).acos() * (180 / math.pi)
    rows = []
    for i, (label, angle) in enumerate(zip(evidence.labels.tolist(), degrees.tolist(), strict=True)):
        name = "" if evidence.names is None else f"\n{evidence.names[i]}"
        rows.append({"tile": i, "text": f"{evidence.classes[label]}{name}\n{angle:.1f}° from the middle of its class"})
    return rows


def _rings() -> dict[str, Any]:
    """Return circles of latitude and longitude as one line with gaps."""
    t = torch.linspace(0, 2 * torch.pi, 73, dtype=torch.float64)
    gap = torch.full((1, 3), torch.nan, dtype=torch.float64)
    parts = []
    for a in (-60, -30, 0, 30, 60):
        up = math.radians(a)
        parts += [
            torch.stack([math.cos(up) * t.cos(), math.cos(up) * t.sin(), torch.full_like(t, math.sin(up))], 1),
            gap,
        ]
    for a in range(0, 180, 30):
        about = math.radians(a)
        parts += [torch.stack([t.cos() * math.cos(about), t.cos() * math.sin(about), t.sin()], 1), gap]
    x, y, z = (0.967 * torch.cat(parts)).T.tolist()
    return {"type": "scatter3d", "mode": "lines", "x": x, "y": y, "z": z, "hoverinfo": "skip", "name": ""}
