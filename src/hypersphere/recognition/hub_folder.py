"""A folder in the layout of the Hugging Face hub: weights, config and a model card with measured figures."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import __version__
from .._extras import require
from ..files import write_json, write_text
from .embedder import Embedder
from .loading import load

TAGS = ("hypersphere", "feature-extraction", "metric-learning", "open-set-recognition")


def write_hub_folder(
    embedder: Embedder,
    folder: str | os.PathLike[str],
    *,
    licence: str,
    title: str | None = None,
    report: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``model.safetensors``, ``config.json`` and ``README.md``, which :func:`load` and the hub read.

    The folder is loaded once before this returns, to verify it.

    Args:
        embedder: The embedder, with the constructor call of its network.
        folder: The folder, created if it is missing. Other files in it are not changed.
        licence: The license of the weights as the hub spells it, such as ``"mit"`` or ``"other"``. There is no default,
            because only the owner of the weights can choose it.
        title: The title of the card; by default the name of the folder.
        report: The content of a ``report.json``, whose figures appear in the card.

    Raises:
        ValueError: If the embedder cannot be saved, or the license is empty.

    >>> import tempfile
    >>> network = hs.config.call(hs.models.mlp, num_classes=None, input_size=4, hidden=(16,))
    >>> embedder = Embedder(network.build(), hs.data.PicturePreprocessing(size=(4, 4), channels=1), network)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sorted(file.name for file in write_hub_folder(embedder, folder, licence="mit").iterdir())
    ['README.md', 'config.json', 'model.safetensors']
    """
    if not licence or not licence.strip() or "\n" in licence:
        raise ValueError(f"licence must be the hub's name of a license, such as mit or other, got {licence!r}")
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise ValueError(f"folder must be a folder, got the file {path}")
    path.mkdir(parents=True, exist_ok=True)
    embedder.save(path / "model.safetensors")
    header = {"library_name": "hypersphere", "library_version": __version__, "fingerprint": embedder.fingerprint}
    write_json(path / "config.json", {**header, **embedder.description()})
    write_text(path / "README.md", make_model_card(embedder, title or path.absolute().name, licence.strip(), report))
    assert load(path, trust=True).fingerprint == embedder.fingerprint
    return path


def make_model_card(embedder: Embedder, title: str, licence: str, report: Mapping[str, Any] | None = None) -> str:
    """Return the card in Markdown: the hub's header, how to use it, how images are prepared, and measured figures."""
    header = [
        "---",
        "library_name: hypersphere",
        f"license: {json.dumps(licence)}",
        "pipeline_tag: image-feature-extraction",
    ]
    header += ["tags:", *(f"- {tag}" for tag in TAGS), "---"]
    count, *size = embedder.preprocessing.shape
    channels = {1: "gray", 3: "color"}.get(count, f"{count}-channel")
    call = embedder.call
    network = type(embedder.network).__name__ if call is None else call.name
    count = sum(p.numel() for p in embedder.network.parameters())
    lines = [*header, "", f"# {title}", "", "An embedder: images in, features out, compared by cosine.", ""]
    lines += ["```python", "import hypersphere as hs", "", 'embedder = hs.load("this folder or its hub id")']
    lines += ['features = embedder(["one.png", "two.png"])', "```", ""]
    lines += ["| | |", "|---|---|", f"| network | {network}, {count:,} parameters |"]
    lines += [f"| input | {channels} images, {size[0]}×{size[1]} |", f"| fingerprint | `{embedder.fingerprint}` |"]
    lines += [
        f"| {_escape_cell(key)} | {_escape_cell(value)} |" for key, value in embedder.card.items() if key != "report"
    ]
    return "\n".join([*lines, "", *_format_report(report), ""])


def push_hub_folder(folder: str | os.PathLike[str], name: str, *, private: bool = True) -> str:
    """Upload a written folder to the hub as ``name`` = ``owner/name``, and return its address.

    A missing repository is created, by default a private one. The credentials are those of ``huggingface_hub``.

    Args:
        folder: A folder of :func:`write_hub_folder`. Other files in it are not uploaded.
        name: The repository, ``owner/name``.
        private: Whether a new repository is private.

    Raises:
        ValueError: If the name has another form, or the upload fails.

    >>> push_hub_folder("small-embedder", "ada/small-embedder", private=False)  # doctest: +SKIP
    'https://.../ada/small-embedder/commit/...'
    """
    if name.count("/") != 1 or not all(name.split("/")):
        raise ValueError(f"name must have the form owner/name, got {name!r}")
    hub = require("huggingface_hub", "hub")
    try:
        api = hub.HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        patterns = ["model.safetensors", "config.json", "README.md"]
        return str(api.upload_folder(repo_id=name, folder_path=str(folder), allow_patterns=patterns))
    except Exception as error:  # many types: no login, no network, no permission
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{folder} was written, but could not be uploaded to {name}: {reason}") from error


def _format_report(report: Mapping[str, Any] | None) -> list[str]:
    """Return the figures of a report as a Markdown table, or a sentence that there are none."""
    if report is None:
        return ["There are no measured figures; `hypersphere evaluate` measures them."]
    figures = report.get("figures")
    if not isinstance(figures, Mapping) or not all(isinstance(entry, Mapping) for entry in figures.values()):
        raise ValueError("report must be the content of a report.json with figures")
    facts = report.get("facts")
    source = facts.get("source", facts.get("pairs")) if isinstance(facts, Mapping) else None
    where = f" on `{Path(str(source)).name}`" if source else ""
    lines = [f"Measured{where} ({report.get('report', 'report')}), with 95 % intervals:", ""]
    lines += ["| measure | value | interval | count |", "|---|---|---|---|"]
    for name, entry in figures.items():
        percent = entry.get("unit") == "fraction"
        unit = "%" if percent else str(entry.get("unit", ""))
        interval = entry.get("interval")
        bounds = "" if not interval else " … ".join(_format_number(end, percent) for end in interval)
        count = entry.get("count")
        lines.append(
            f"| {_escape_cell(name)} | {_format_number(entry.get('value'), percent)} {unit} | {bounds} | {count or ''} |"
        )
    return lines


def _format_number(value: Any, percent: bool) -> str:
    if isinstance(value, float):
        return f"{100 * value if percent else value:.4g}"
    return "" if value is None else _escape_cell(value)


def _escape_cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
