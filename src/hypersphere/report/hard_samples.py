"""Where recognition fails: the worst pairs, and the classes that are taken for each other, as pictures."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..evaluation import Evidence
from ..geometry import normalize
from .page_parts import Block, Grid, Note, Pictures, Section, Sheet, Tile
from .runs import RunRecord
from .score_charts import ScoredPairs

SHOWN = 8
ONCE = 2  # times that one picture may appear among the worst


def hard_section(runs: Sequence[RunRecord], pairs: dict[str, ScoredPairs], sheets: dict[str, Sheet]) -> Section | None:
    """Return worst pairs and most confused classes of each run that kept features; None where none did."""
    blocks: list[Block] = []
    for place, run in enumerate(runs):
        if run.evidence is None or run.name not in pairs or not pairs[run.name].both_kinds:
            continue
        who = f", {run.name}" if len(runs) > 1 else ""
        sheet = f"run{place}" if f"run{place}" in sheets else None
        found = pairs[run.name]
        kinds = {True: "Pairs of one class furthest apart", False: "Pairs of two classes closest together"}
        for same, caption in kinds.items():
            blocks.append(_pairs(run.evidence, found, worst_pairs(found, same), f"{caption}{who}", sheet))
        blocks += _confused(run.evidence, who, sheet)
    return Section("hard", "Hardest samples", blocks) if blocks else None


def worst_pairs(pairs: ScoredPairs, same: bool, count: int = SHOWN) -> Int[Tensor, "count"]:
    """Return the positions of the pairs of one kind that are most wrong, the worst first; no sample is in more than two.

    Worst are pairs of one class with the largest angles, and pairs of two with the smallest.
    """
    places = (pairs.same == same).nonzero().flatten()
    cosine = pairs.cosine[places]
    order = places[cosine.argsort(descending=not same, stable=True)]
    seen: dict[int, int] = {}
    kept: list[int] = []
    for place in order.tolist():
        ends = (int(pairs.first[place]), int(pairs.second[place]))
        if max(seen.get(end, 0) for end in ends) < ONCE:
            kept.append(place)
            seen |= {end: seen.get(end, 0) + 1 for end in ends}
        if len(kept) == count:
            break
    return torch.tensor(kept, dtype=torch.long)


def confusions(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]
) -> list[tuple[int, int, Int[Tensor, "_"], Int[Tensor, "_"]]]:
    """Return which classes are taken for which, most often first: (true, found, samples, what each was taken for).

    A sample is taken for the class of the nearest other sample, by angle.

    >>> features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.95, 0.05], [0.1, 0.9]])
    >>> [(t, f, s.tolist()) for t, f, s, _ in confusions(features, torch.tensor([0, 0, 1, 1, 1]))]
    [(0, 1, [0, 1]), (1, 0, [3])]
    """
    unit = normalize(features.double())
    cosine = unit @ unit.T
    cosine.fill_diagonal_(-2)
    nearest = cosine.argmax(1)
    wrong = (labels[nearest] != labels).nonzero().flatten()
    found: dict[tuple[int, int], list[int]] = {}
    for i in wrong.tolist():
        found.setdefault((int(labels[i]), int(labels[nearest[i]])), []).append(i)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return [(a, b, torch.tensor(samples), nearest[samples]) for (a, b), samples in ordered]


def _pairs(evidence: Evidence, pairs: ScoredPairs, chosen: Tensor, caption: str, sheet: str | None) -> Block:
    rows = []
    for place in chosen.tolist():
        ends = [int(pairs.first[place]), int(pairs.second[place])]
        names = [_called(evidence, end) for end in ends]
        rows.append((ends, names, f"{float(pairs.degrees[place]):.1f}°"))
    if sheet is None:
        return Grid(caption, ["one", "other", "angle"], [[*names, angle] for _, names, angle in rows])
    groups = [
        ([Tile(sheet, end, name) for end, name in zip(ends, names, strict=True)], f"{' · '.join(dict.fromkeys(names))}, {angle}")
        for ends, names, angle in rows
    ]  # fmt: skip
    return Pictures(caption, groups)


def _confused(evidence: Evidence, who: str, sheet: str | None) -> list[Block]:
    found = confusions(evidence.features, evidence.labels)
    if not found:
        return [Note(f"No sample's nearest neighbour is of another class{who}.")]
    total = sum(len(samples) for _, _, samples, _ in found)
    caption = f"Most confused classes{who}: {total} of {len(evidence.labels):,} samples have a nearest neighbour of another class"
    rows = []
    for true, other, samples, taken in found[:SHOWN]:
        text = f"{evidence.classes[true]} taken for {evidence.classes[other]}, {len(samples)}\u00a0×"
        rows.append((text, samples[:2].tolist(), taken[:2].tolist()))
    if sheet is None:
        return [Grid(caption, ["confusion"], [[text] for text, _, _ in rows])]
    groups = [
        ([Tile(sheet, end, _called(evidence, end)) for pair in zip(samples, taken, strict=True) for end in pair], text)
        for text, samples, taken in rows
    ]
    return [Pictures(caption, groups)]


def _called(evidence: Evidence, place: int) -> str:
    name = str(evidence.classes[int(evidence.labels[place])])
    return name if evidence.names is None else f"{name} ({evidence.names[place]})"
