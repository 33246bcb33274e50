"""Reading of checkpoints tensor by tensor: state_dicts, safetensors files and folders of shards. No code in them is run."""

import json
import pathlib
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..files import read_tensor

MAX_DEPTH = 32  # depth of nested dictionaries in a pickled checkpoint


class Checkpoint:
    """The names and tensors of a checkpoint, and the ``config.json`` of its folder.

    ``path`` is a ``.safetensors`` file, a state_dict that torch can load without running code, or a folder with
    ``*.safetensors`` shards (as ``transformers`` writes them) or one ``pytorch_model.bin``. Tensors are read one at a time,
    so the memory is that of the largest tensor. A pickled state_dict is mapped into memory.

    >>> Checkpoint("nowhere.pt")
    Traceback (most recent call last):
    ...
    ValueError: there is no file or folder nowhere.pt
    """

    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path)
        if not self.path.exists():
            raise ValueError(f"there is no file or folder {path}")
        self.files = [self.path] if self.path.is_file() else _find_shards(self.path)
        self.config = _read_config(self.path) if self.path.is_dir() else {}
        self._tensors: dict[str, Any] | None = None
        self.where = self._list_files()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield names and tensors in the order of the files; other values of a pickled file are returned unchanged."""
        for name in self.where:
            yield name, self[name]

    def __contains__(self, name: object) -> bool:
        return name in self.where

    def __getitem__(self, name: str) -> Any:
        """Read and return one tensor."""
        if self._tensors is not None:
            return self._tensors[name]
        with _open_file(self.where[name]) as file:
            try:
                return read_tensor(file, name)
            except ValueError as error:
                raise ValueError(f"{self.where[name]}: {error}") from error

    def __len__(self) -> int:
        return len(self.where)

    def _list_files(self) -> dict[str, pathlib.Path]:
        """Return the file of each tensor."""
        files: dict[str, pathlib.Path] = {}
        for path in self.files:
            if path.suffix == ".safetensors":
                with _open_file(path) as file:
                    names = list(file.keys())
            else:
                self._tensors = {**(self._tensors or {}), **_read_pickle(path)}
                names = list(self._tensors)
            for name in names:
                if name in files and files[name] != path:
                    raise ValueError(
                        f"{name} is in {files[name].name} and in {path.name}: one of them belongs to another checkpoint"
                    )
                files[name] = path
        return files


def _find_shards(folder: pathlib.Path) -> list[pathlib.Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{index} cannot be read as an index of shards: {error}") from error
        files = [folder / pathlib.PurePosixPath(str(name)).name for name in names]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise ValueError(f"{folder} has no {', '.join(missing)}, which its index lists")
        return files
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    if not files:
        raise ValueError(f"{folder} has no .safetensors file and no pytorch_model.bin")
    return files


def _read_config(folder: pathlib.Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError:
        return {}  # the configuration is optional
    return content if isinstance(content, dict) else {}


def _open_file(path: pathlib.Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a readable checkpoint: {error}") from error


def _read_pickle(path: pathlib.Path) -> dict[str, Any]:
    try:
        content = _load_pickle(path)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged, or holds more than tensors and plain values, which are not read"
        ) from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} must contain a state_dict, got a {type(content).__name__}")
    return dict(_flatten("", content, 0))


def _load_pickle(path: pathlib.Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:  # files of the older format cannot be mapped
        return torch.load(path, map_location="cpu", weights_only=True)


def _flatten(prefix: str, content: Mapping[Any, Any], depth: int) -> Iterator[tuple[str, Any]]:
    if depth > MAX_DEPTH:
        raise ValueError(f"the checkpoint nests dictionaries more than {MAX_DEPTH} deep, or in a cycle")
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flatten(f"{name}.", value, depth + 1)
        else:
            yield name, value


def as_dense(value: Any) -> tuple[Tensor | None, str]:
    """Return a tensor as float32 or better and "", or None and the reason why it has no neurons."""
    if not isinstance(value, Tensor):
        return None, "not a tensor"
    if value.ndim < 2:
        return None, ""
    if value.layout != torch.strided:
        return None, f"a tensor of layout {value.layout} is not read"
    if value.is_meta:
        return None, "a tensor on the meta device has no values"
    if not value.is_floating_point():
        return None, f"{value.dtype} is not a floating-point type"
    if value.numel() * value.element_size() > 4 * value.untyped_storage().nbytes():
        return None, f"a tensor of {tuple(value.shape)} that repeats {value.untyped_storage().nbytes()} bytes"
    wide = torch.float64 if value.dtype == torch.float64 else torch.float32
    return value.to(wide), ""
