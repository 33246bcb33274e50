"""Failures of recognition as pictures: the worst pairs and the most confused classes."""

import base64
import pathlib
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..data.media import is_recording
from ..data.recordings import RECORDING_ENDINGS
from ..evaluation import Evidence
from ..geometry import normalize
from .page_parts import Block, Grid, Note, Pictures, Section, Sheet, Tile
from .runs import RunRecord
from .score_charts import ScoredPairs

MAX_SHOWN = 8  # pairs or confusions per list
MAX_REPEATS = 2  # pairs in which one sample may appear
MAX_SOUND_BYTES = 200_000  # size of one recording on the page
MAX_SOUNDS_BYTES = 1_500_000  # size of all recordings of a run on the page


def make_hard_section(
    runs: Sequence[RunRecord], pairs: dict[str, ScoredPairs], sheets: dict[str, Sheet]
) -> Section | None:
    """Return the worst pairs and most confused classes of each run with features; None if no run has features."""
    blocks: list[Block] = []
    for place, run in enumerate(runs):
        if run.evidence is None or run.name not in pairs or not pairs[run.name].both_kinds:
            continue
        suffix = f", {run.name}" if len(runs) > 1 else ""
        sheet = f"run{place}" if f"run{place}" in sheets else None
        scored, sounds = pairs[run.name], _Sounds(run.evidence)
        kinds = {True: "Pairs of one class furthest apart", False: "Pairs of two classes closest together"}
        for same, caption in kinds.items():
            chosen = find_worst_pairs(scored, same, run.evidence.labels)
            blocks.append(_show_pairs(run.evidence, scored, chosen, f"{caption}{suffix}", sheet, sounds))
        blocks += _make_confusion_blocks(run.evidence, suffix, sheet)
    return Section("hard", "Hardest samples", blocks) if blocks else None


def find_worst_pairs(
    pairs: ScoredPairs, same: bool, labels: Int[Tensor, "n"], count: int = MAX_SHOWN
) -> Int[Tensor, "count"]:
    """Return the positions of the worst pairs of one kind, the worst first, from as many classes as possible.

    The worst pairs of one class have the largest angles, the worst pairs of two classes the smallest. Each combination of two
    classes appears once, unless there are too few combinations to fill the list. No sample is in more than two pairs.

    Args:
        pairs: All pairs with their cosines.
        same: Choose pairs of one class instead of pairs of two.
        labels: The class of each sample.
        count: Largest number of pairs.
    """
    places = (pairs.same == same).nonzero().flatten()
    cosine = pairs.cosine[places]
    order = places[cosine.argsort(descending=not same, stable=True)]
    ends = torch.stack([pairs.first[order], pairs.second[order]], 1)
    classes = labels[ends].sort(1).values
    samples_seen: dict[int, int] = {}
    classes_seen: set[tuple[int, int]] = set()
    kept: list[int] = []  # ranks in ``order``
    for repeat_classes in (False, True):
        for rank in range(len(order)):
            if len(kept) == count:
                break
            first, second = ends[rank].tolist()
            both = (int(classes[rank, 0]), int(classes[rank, 1]))
            if rank in kept or (both in classes_seen and not repeat_classes):
                continue
            if max(samples_seen.get(first, 0), samples_seen.get(second, 0)) < MAX_REPEATS:
                kept.append(rank)
                classes_seen.add(both)
                samples_seen |= {end: samples_seen.get(end, 0) + 1 for end in (first, second)}
    return order[torch.tensor(sorted(kept), dtype=torch.long)]


def list_confusions(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]
) -> list[tuple[int, int, Int[Tensor, "_"], Int[Tensor, "_"]]]:
    """Return confused classes, the most frequent first: (true class, other class, samples, nearest neighbor of each).

    A sample is confused if the nearest other sample, by angle, is of another class.

    >>> features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.95, 0.05], [0.1, 0.9]])
    >>> [(t, f, s.tolist()) for t, f, s, _ in list_confusions(features, torch.tensor([0, 0, 1, 1, 1]))]
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


class _Sounds:
    """Data addresses of the recordings of samples, up to the size that fits on a page."""

    def __init__(self, evidence: Evidence):
        self.names, self.left = evidence.names, MAX_SOUNDS_BYTES
        self.known: dict[int, str] = {}

    def find(self, place: int) -> str:
        """Return the data address of a sample's recording; an empty text if its file is missing, too large or no recording."""
        if self.names is None:
            return ""
        if place not in self.known:
            self.known[place] = self._read(pathlib.Path(self.names[place]))
        return self.known[place]

    def _read(self, path: pathlib.Path) -> str:
        if not path.name.lower().endswith(RECORDING_ENDINGS) or not path.is_file():
            return ""
        if path.stat().st_size > min(MAX_SOUND_BYTES, self.left):
            return ""
        content = path.read_bytes()
        if not is_recording(content):
            return ""
        self.left -= len(content)
        kind = {".wav": "wav", ".flac": "flac", ".mp3": "mpeg"}.get(path.suffix.lower(), "ogg")
        return f"data:audio/{kind};base64,{base64.b64encode(content).decode()}"


def _show_pairs(
    evidence: Evidence, pairs: ScoredPairs, chosen: Tensor, caption: str, sheet: str | None, sounds: _Sounds
) -> Block:
    rows = []
    for place in chosen.tolist():
        ends = [int(pairs.first[place]), int(pairs.second[place])]
        names = [_name_sample(evidence, end) for end in ends]
        rows.append((ends, names, f"{float(pairs.degrees[place]):.1f}°"))
    if sheet is None:
        return Grid(caption, ["one", "other", "angle"], [[*names, angle] for _, names, angle in rows])
    groups = []
    for ends, names, angle in rows:
        tiles = [Tile(sheet, end, name, sounds.find(end)) for end, name in zip(ends, names, strict=True)]
        groups.append((tiles, f"{' · '.join(dict.fromkeys(names))}, {angle}"))
    return Pictures(caption, groups)


def _make_confusion_blocks(evidence: Evidence, suffix: str, sheet: str | None) -> list[Block]:
    found = list_confusions(evidence.features, evidence.labels)
    if not found:
        return [Note(f"No sample's nearest neighbor is of another class{suffix}.")]
    total = sum(len(samples) for _, _, samples, _ in found)
    caption = f"Most confused classes{suffix}: {total} of {len(evidence.labels):,} samples have a nearest neighbor of another class"
    rows = []
    for true, other, samples, taken in found[:MAX_SHOWN]:
        text = f"{evidence.classes[true]} taken for {evidence.classes[other]}, {len(samples)}\u00a0×"
        rows.append((text, samples[:2].tolist(), taken[:2].tolist()))
    if sheet is None:
        return [Grid(caption, ["confusion"], [[text] for text, _, _ in rows])]
    groups = [
        (
            [
                Tile(sheet, end, _name_sample(evidence, end))
                for pair in zip(samples, taken, strict=True)
                for end in pair
            ],
            text,
        )
        for text, samples, taken in rows
    ]
    return [Pictures(caption, groups)]


def _name_sample(evidence: Evidence, place: int) -> str:
    name = str(evidence.classes[int(evidence.labels[place])])
    return name if evidence.names is None else f"{name} ({pathlib.PurePath(evidence.names[place]).name})"
