"""What a fit ends with: the report on identities never trained on, their worst pairs and confusions as pictures."""

import functools
import importlib
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import safetensors.torch
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ... import plots
from ...data import Record
from ...evaluation import OpenSetReport, open_set_report
from ...files import checksum, write_atomically, write_json
from ...recognition import Embedder
from ...recognition.embedder import read_file
from ..datasets import Samples

FEATURES = "hypersphere-held-out/1"
WORST, CONFUSED, EXAMPLES = 12, 8, 3


def embed_samples(embedder: Embedder, samples: Samples, batch: int = 256) -> Float[Tensor, "n d"]:
    """Return the features of samples by an embedder, on the CPU."""
    parts = torch.arange(len(samples)).split(batch)
    return torch.cat([embedder(samples.batch(part)[0], batch).cpu() for part in parts])


def write_features(
    path: pathlib.Path, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], records: Sequence[Record]
) -> None:
    """Write features of held-out pictures with their identities, names and categories, atomically."""
    told = {
        "names": [record.name for record in records],
        "identities": [record.label for record in records],
        "categories": [record.category for record in records],
    }
    tensors = {"features": features.contiguous(), "labels": labels.contiguous()}
    header = {FEATURES: json.dumps({**told, "sha256": checksum(told, tensors)})}
    write_atomically(path, lambda temporary: safetensors.torch.save_file(tensors, temporary, header))


def read_report(path: str | os.PathLike[str]) -> OpenSetReport:
    """Return the report on the features that :func:`write_features` wrote."""
    told, tensors = read_file(path, FEATURES)
    if told.pop("sha256", None) != checksum(told, tensors):
        raise ValueError(f"{path} is damaged: its checksum does not fit its content")
    categories = told["categories"]
    known = None if any(category is None for category in categories) else categories
    return open_set_report(tensors["features"], tensors["labels"], categories=known)


def described(report: OpenSetReport, records: Sequence[Record]) -> dict[str, Any]:
    """Return the report as plain values: figures, worst pairs and confusions by name, curves."""
    accepts, rejects = report.worst_pairs()
    content: dict[str, Any] = json.loads(report.json())
    names = [record.name for record in records]
    owner = {int(label): record.label for label, record in zip(report.labels.tolist(), records, strict=True)}
    content["held_out"] = sorted(set(owner.values()))
    content["worst_pairs"] = {
        kind: [
            {"first": names[a], "second": names[b], "cosine": cosine}
            for a, b, cosine in zip(pairs.first.tolist(), pairs.second.tolist(), pairs.scores.tolist(), strict=True)
        ]
        for kind, pairs in (("different_identities", accepts), ("same_identity", rejects))
    }
    content["confused"] = [
        {"identity": owner[who], "taken_for": owner[other], "times": times} for who, other, times in report.confused()
    ]
    content["curves"] = report.data()
    return content


def draw_report(report: OpenSetReport, samples: Samples, records: Sequence[Record], folder: pathlib.Path) -> list[str]:
    """Draw the ROC, the worst pairs of both kinds and the most confused identities; returns the names of the files."""
    folder.mkdir(exist_ok=True)
    drawn = {"roc.png": report.plot()[0]}
    accepts, rejects = report.worst_pairs()
    for name, pairs, title in (
        ("worst_different.png", accepts, "Different identities that look most alike"),
        ("worst_same.png", rejects, "Pictures of one identity that look least alike"),
    ):
        strips = [
            (
                _pictures(samples, [a, b]),
                f"{_short(records[a].label)} | {_short(records[b].label)}\ncosine {cosine:.2f}",
            )
            for a, b, cosine in list(
                zip(pairs.first.tolist(), pairs.second.tolist(), pairs.scores.tolist(), strict=True)
            )[:WORST]
        ]
        drawn[name] = plots.plot_contact_sheet(strips, title=title)[0]
    confused = report.confused(CONFUSED)
    if confused:
        strips = []
        for who, other, times in confused:
            both = [torch.nonzero(report.labels == one).flatten()[:EXAMPLES].tolist() for one in (who, other)]
            names = [_short(records[side[0]].label) for side in both]
            strips.append(
                (
                    _pictures(samples, both[0] + both[1]),
                    f"{names[0]} taken for {names[1]}\n{'once' if times == 1 else f'{times} times'}",
                )
            )
        title = f"Identities most often taken for each other ({EXAMPLES} pictures of each)"
        drawn["confused.png"] = plots.plot_contact_sheet(strips, title=title, columns=2)[0]
    for name, figure in drawn.items():
        save = functools.partial(figure.savefig, dpi=130, format="png")
        write_atomically(folder / name, save)
    return list(drawn)


def write_page_of(folder: pathlib.Path) -> str | None:
    """Write ``report.html``, where the room of pages is there; returns its name. The one place that calls it."""
    try:
        room = importlib.import_module("hypersphere.report")
    except ModuleNotFoundError:
        return None
    if not hasattr(room, "write_page"):
        return None
    room.write_page([folder], folder / "report.html")
    return "report.html"


def write_report(report: OpenSetReport, records: Sequence[Record], path: pathlib.Path) -> None:
    """Write ``report.json``, atomically."""
    write_json(path, described(report, records))


def _pictures(samples: Samples, index: Sequence[int]) -> list[Tensor]:
    return list(samples.batch(torch.tensor(list(index)))[0])


def _short(name: str) -> str:
    """A long name by its ends."""
    return name if len(name) <= 18 else f"{name[:8]}…{name[-9:]}"
