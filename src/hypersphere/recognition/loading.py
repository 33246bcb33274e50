"""Load embedders from a file, a folder, the Hugging Face hub, the catalog of pretrained models, or the package itself."""

import json
import os
import re
from pathlib import Path

import torch

from .._extras import require
from ..config import Call
from ..data import Preprocessing
from ..models import CATALOG, GraphNetwork, find_entry, load_network
from .embedder import FORMAT, Embedder, read_file

PRETRAINED = Path(__file__).parent / "pretrained"
FILES = ("embedder.safetensors", "model.safetensors")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def load(
    name: str | os.PathLike[str],
    *,
    device: torch.device | str | None = None,
    trust: bool = False,
    revision: str | None = None,
    accept_licence: str | None = None,
) -> Embedder:
    """Load an embedder, which turns paths, PIL images, arrays and tensors into features.

    Args:
        name: An embedder file; a folder that contains one, such as a run or a folder written by ``hypersphere export --hub``;
            an id ``owner/name`` of the Hugging Face hub; the name of a pretrained model that ``hypersphere models`` lists,
            such as ``"sface"``; or ``"characters"``, an embedder of handwritten characters that ships with the package. Names
            of models take precedence: write ``./sface`` for a folder of that name.
        device: The device of the network. The default is the CPU.
        trust: Whether to import code outside this library that the embedder file names. Without it, only code of this library
            and of PyTorch runs.
        revision: The branch, tag or commit of a repository on the hub.
        accept_licence: To accept the license of a pretrained model that is not permissive, pass the name of the model here.

    Raises:
        ValueError: If nothing of this name is found, or if it is not an embedder.

    >>> import numpy as np
    >>> embedder = load("characters")
    >>> embedder(np.full((105, 105), 255, dtype=np.uint8)).shape
    torch.Size([1, 128])
    """
    if isinstance(name, str) and name in list_shipped():
        return Embedder.load(PRETRAINED / f"{name}.safetensors", trust=trust, device=device)
    if isinstance(name, str) and name in CATALOG:
        embedder = load_pretrained(name, accept_licence=accept_licence)
        return embedder if device is None else embedder.to(device)
    path = Path(name)
    if path.is_dir():
        return _from_folder(path, trust, device)
    if path.is_file():
        return Embedder.load(path, trust=trust, device=device)
    text = str(name)
    if not _HUB_ID.fullmatch(text) or path.suffix == ".safetensors":
        raise ValueError(
            f"there is no embedder {text}: it is not a file, a folder, an id owner/name of the Hugging Face hub, or the name "
            f"of a pretrained model ({', '.join([*list_shipped(), *CATALOG])})"
        )
    return _from_folder(_download(text, revision), trust, device)


def load_pretrained(name: str, *, accept_licence: str | None = None) -> Embedder:
    """Return the embedder of a catalog entry. Its weights are downloaded on first use and verified.

    Args:
        name: The name of the entry.
        accept_licence: The same name again, to accept a license that is not permissive.

    Raises:
        ValueError: If the entry is not an embedder, or the weights cannot be downloaded.

    >>> load_pretrained("sface")(["ann.jpg"]).shape  # doctest: +SKIP
    torch.Size([1, 128])
    """
    entry = find_entry(name)
    if not entry.feature_dim:
        raise ValueError(f"{name} is not an embedder; its task is: {entry.task}")
    network = load_network(name, accept_licence=accept_licence)
    arguments = {"graph": network.graph} if isinstance(network, GraphNetwork) else {}
    preprocessing = Preprocessing.from_dict(dict(entry.preprocessing))
    card = {"name": name, "licence": entry.licence, "file": entry.file, "sha256": entry.sha256}
    return Embedder(network, preprocessing, Call(type(network), arguments), card)


def list_shipped() -> tuple[str, ...]:
    """Return the names of the embedders that ship with the package.

    >>> list_shipped()
    ('characters',)
    """
    return tuple(sorted(path.stem for path in PRETRAINED.glob("*.safetensors")))


def _from_folder(folder: Path, trust: bool, device: torch.device | str | None) -> Embedder:
    file = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if file is None:
        raise ValueError(f"the folder {folder} holds no embedder: neither {' nor '.join(FILES)}")
    config = folder / "config.json"
    if file.name == "model.safetensors" and config.is_file():
        _check_config(config, file)
    return Embedder.load(file, trust=trust, device=device)


def _check_config(config: Path, file: Path) -> None:
    """Raise a ``ValueError`` if ``config.json`` differs from the header of the weights, which defines the network."""
    header, _ = read_file(file, FORMAT)
    try:
        described = json.loads(config.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ValueError(f"{config} is not readable JSON: {error}") from error
    content = header.get("content")
    if not isinstance(described, dict) or not isinstance(content, dict):
        raise ValueError(f"{config} does not describe an embedder")
    differing = [key for key in content if described.get(key) != content[key]]
    if differing:
        raise ValueError(f"{config} and {file.name} differ in {', '.join(differing)}; export the folder again")


def _download(name: str, revision: str | None) -> Path:
    hub = require("huggingface_hub", "hub")
    try:
        patterns = [*FILES, "config.json"]
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=patterns))
    except Exception as error:  # many types: unknown id, no access, no network, a full disk
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{name} is not a file or folder, and cannot be downloaded from the hub: {reason}") from error
