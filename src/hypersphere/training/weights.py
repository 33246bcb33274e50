"""Initial weights from a run, a safetensors file, or a state_dict that torch can load without running code."""

import os
import pathlib
import pickle
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..files import load_tensors

WRAPPERS = ("model.", "module.", "backbone.", "_orig_mod.", "body.", "network.", "networks.0.")  # prefixes of wrappers


def load_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Return the tensors of a run folder, a ``.safetensors`` file or a ``.pt``/``.pth`` state_dict by name, without running code.

    >>> import tempfile
    >>> from hypersphere.training import load_weights
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save(torch.nn.Linear(4, 2).state_dict(), f"{folder}/linear.pt")
    ...     {name: tuple(tensor.shape) for name, tensor in load_weights(f"{folder}/linear.pt").items()}
    {'weight': (2, 4), 'bias': (2,)}
    """
    file = pathlib.Path(path)
    if file.is_dir():
        file = file / "model.safetensors"
    if not file.is_file():
        raise ValueError(f"weights: there is no file {file}")
    try:
        if file.suffix == ".safetensors":
            content: Any = load_tensors(file)
        else:
            content = torch.load(file, map_location="cpu", weights_only=True)
    except ValueError as error:
        raise ValueError(f"weights: {error}") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError) as error:
        raise ValueError(f"weights: {file} is damaged, or holds more than tensors and plain values") from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping):
        raise ValueError(f"weights: {file} holds a {type(content).__name__}, not a state_dict")
    return {str(name): tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}


def start_from(model: nn.Module, path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Copy the tensors that fit by name and shape into a model.

    Prefixes of wrappers, such as a projection or the module of another trainer, are ignored.

    Args:
        model: The network.
        path: A run folder, a ``.safetensors`` file, or a ``.pt``/``.pth`` state_dict.

    Returns:
        Names of tensors: ``loaded``; ``missing`` in the file; ``unused``, only in the file; ``misshapen``, of another shape,
        such as a classifier for other classes.

    Raises:
        ValueError: If nothing fits.

    >>> import tempfile
    >>> from hypersphere.training import start_from
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save({"module.weight": torch.ones(2, 4), "module.scale": torch.ones(1)}, f"{folder}/other.pt")
    ...     start_from(torch.nn.Linear(4, 2), f"{folder}/other.pt")
    {'loaded': ['weight'], 'missing': ['bias'], 'unused': ['module.scale'], 'misshapen': []}
    """
    found = load_weights(path)
    own = model.state_dict()
    pairs = _match_names(list(own), list(found))
    report: dict[str, list[str]] = {"loaded": [], "missing": [], "unused": [], "misshapen": []}
    for name, tensor in own.items():
        if name not in pairs:
            report["missing"].append(name)
        elif found[pairs[name]].shape != tensor.shape:
            report["misshapen"].append(name)
        else:
            report["loaded"].append(name)
    report["unused"] = [name for name in found if name not in pairs.values()]
    if not report["loaded"]:
        raise ValueError(
            f"weights: nothing in {path} fits this network; it has {', '.join(list(own)[:4])} …, "
            f"the file {', '.join(list(found)[:4])} …"
        )
    state = {name: found[pairs[name]].to(own[name].dtype) for name in report["loaded"]}
    model.load_state_dict(state, strict=False)
    return report


def _match_names(own: list[str], found: list[str]) -> dict[str, str]:
    """Return the name in the file for each name in the model: the same name, or the only one that is equal without prefixes."""
    pairs = {name: name for name in own if name in found}
    own_unmatched, found_unmatched = ([name for name in names if name not in pairs] for names in (own, found))
    found_by_inner = _index_without_prefixes(found_unmatched)
    for inner, name in _index_without_prefixes(own_unmatched).items():
        if inner in found_by_inner:
            pairs[name] = found_by_inner[inner]
    return pairs


def _index_without_prefixes(names: list[str]) -> dict[str, str]:
    """Return names by their form without prefixes. Names that are equal without prefixes are left out."""
    groups: dict[str, list[str]] = {}
    for name in names:
        inner = name
        while wrapper := next((prefix for prefix in WRAPPERS if inner.startswith(prefix)), None):
            inner = inner.removeprefix(wrapper)
        groups.setdefault(inner, []).append(name)
    return {inner: group[0] for inner, group in groups.items() if len(group) == 1}
