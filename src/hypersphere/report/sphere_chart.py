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
from .page_parts import Block, Chart, Note, Section, Sheet, arrange_charts, escape_markup, make_key
from .runs import RunRecord

MAX_CLASSES = 60  # classes on a sphere; each is a trace with a switch
MAX_LABELED = 20  # classes whose names are written on the sphere
MAX_NAME_LENGTH = 18  # characters of a name on the sphere; the list beside it shows the whole name
MAX_SPHERES = 4  # spheres on a page; browsers limit the number of 3-D drawings


def make_sphere_section(runs: Sequence[RunRecord], sheets: dict[str, Sheet]) -> Section | None:
    """Return a sphere for each run with features; None if no run has features."""
    found = [(i, run, run.evidence) for i, run in enumerate(runs) if run.evidence is not None]
    found = [(i, run, e) for i, run, e in found if e.features.shape[1] > 1 and len(e.labels)]
    if not found:
        return None
    alone = len(found) == 1
    drawn = [_draw_sphere(i, run, evidence, sheets, alone) for i, run, evidence in found[:MAX_SPHERES]]
    blocks: list[Block] = [*arrange_charts(drawn)]
    if len(found) > MAX_SPHERES:
        names = ", ".join(run.name for _, run, _ in found[MAX_SPHERES:])
        blocks.append(Note(f"A page shows at most {MAX_SPHERES} spheres; those of {names} are not shown."))
    return Section("sphere", "Features on the sphere", blocks)


def project_to_space(features: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n 3"], float]:
    """Return features as points of the unit sphere in three dimensions, and the share of their squared length that is kept.

    The directions are projected onto the three axes with the largest Σ⟨x̂, axis⟩², the leading right singular vectors of the
    directions, and normalized again. They are not centered, because angles are measured at the origin. Features of two and three
    dimensions are shown without loss.

    >>> points, share = project_to_space(torch.eye(5)[:3])
    >>> points.shape, round(share, 6)
    (torch.Size([3, 3]), 1.0)
    """
    unit = normalize(features.detach().double().cpu())
    if unit.shape[1] <= 3:
        return torch.nn.functional.pad(unit, (0, 3 - unit.shape[1])), 1.0
    if 3 <= len(unit) < unit.shape[1]:  # d³ operations of the other way take seconds for a joined embedder
        _, lengths, rows = torch.linalg.svd(unit, full_matrices=False)
        values, axes = lengths.square().flip(0), rows[:3].T
    else:
        values, axes = torch.linalg.eigh(unit.T @ unit)
        axes = axes.flip(1)[:, :3]
    axes = axes * axes.sum(0).sign().where(axes.sum(0) != 0, torch.ones(3, dtype=axes.dtype))  # the sign is arbitrary
    points = unit @ axes
    share = float(values.flip(0)[:3].sum() / values.sum())
    return normalize(points), share


def _draw_sphere(place: int, run: RunRecord, evidence: Evidence, sheets: dict[str, Sheet], alone: bool) -> Chart:
    points, share = project_to_space(evidence.features)
    shown = evidence.labels.unique()[:MAX_CLASSES].tolist()
    means = _compute_centers(evidence, points)
    traces: list[dict[str, Any]] = [_draw_rings()]
    classes = []
    unit = normalize(evidence.features.double())
    for tint, label in enumerate(shown):
        name = str(evidence.classes[label])
        of_class = (evidence.labels == label).nonzero().flatten()
        x, y, z = points[of_class].T.tolist()
        look = {"size": 4 if len(points) > 600 else 5, "opacity": 1, "line": {"width": 0}}
        common = {"type": "scatter3d", "x": x, "y": y, "z": z, "name": escape_markup(name), "of": label, "tint": tint}
        traces.append(
            {**common, "mode": "markers", "marker": look, "customdata": of_class.tolist(), "hoverinfo": "none"}
        )
        at = means[label].tolist() if len(shown) <= MAX_LABELED else None
        classes.append(
            {
                "name": name,
                "label": escape_markup(name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…"),
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
        make_key("sphere", place),
        caption,
        summary,
        traces,
        kind="sphere",
        extra=extra,
        size="full" if alone else "half",
    )


def _compute_centers(evidence: Evidence, points: Float[Tensor, "n 3"]) -> dict[int, Float[Tensor, "3"]]:
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
        rows.append({"tile": i, "text": f"{evidence.classes[label]}{name}\n{angle:.1f}° from the center of its class"})
    return rows


def _draw_rings() -> dict[str, Any]:
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
