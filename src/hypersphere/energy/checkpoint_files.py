"""The tensors of a checkpoint, one at a time: state_dicts, safetensors files, and folders of shards. Nothing in them runs."""

import json
import pathlib
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..files import read_tensor

DEPTH = 32  # of nested dictionaries in a pickled checkpoint


class Checkpoint:
    """Names and tensors of a checkpoint, and what its folder's ``config.json`` says.

    ``path`` is a ``.safetensors`` file, a state_dict that torch can load without running code, or a folder with
    ``*.safetensors`` shards (as ``transformers`` writes them) or one ``pytorch_model.bin``. Shards are opened one after
    the other and tensors read one by one, so that memory is bounded by the largest tensor; a pickled state_dict is
    mapped into memory.

    >>> Checkpoint("nowhere.pt")
    Traceback (most recent call last):
    ...
    ValueError: there is no file or folder nowhere.pt
    """

    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path)
        if not self.path.exists():
            raise ValueError(f"there is no file or folder {path}")
        self.files = [self.path] if self.path.is_file() else _shards(self.path)
        self.config = _config(self.path if self.path.is_dir() else self.path.parent) if self.path.is_dir() else {}
        self._tensors: dict[str, Any] | None = None
        self.where = self._index()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield names and tensors in the order of the files; other values of a pickled file are returned unchanged."""
        for name in self.where:
            yield name, self[name]

    def __contains__(self, name: object) -> bool:
        return name in self.where

    def __getitem__(self, name: str) -> Any:
        """Return one tensor, read when it is asked for."""
        if self._tensors is not None:
            return self._tensors[name]
        with _open_file(self.where[name]) as file:
            try:
                return read_tensor(file, name)
            except ValueError as error:
                raise ValueError(f"{self.where[name]}: {error}") from error

    def __len__(self) -> int:
        return len(self.where)

    def _index(self) -> dict[str, pathlib.Path]:
        found: dict[str, pathlib.Path] = {}
        for path in self.files:
            if path.suffix == ".safetensors":
                with _open_file(path) as file:
                    names = list(file.keys())
            else:
                self._tensors = {**(self._tensors or {}), **_read_pickle(path)}
                names = list(self._tensors)
            for name in names:
                if name in found and found[name] != path:
                    raise ValueError(
                        f"{name} stands in {found[name].name} and in {path.name}: one of them is another checkpoint's"
                    )
                found[name] = path
        return found


def _shards(folder: pathlib.Path) -> list[pathlib.Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{index} cannot be read as an index of shards: {error}") from error
        files = [folder / pathlib.PurePosixPath(str(name)).name for name in names]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise ValueError(f"{folder} lacks {', '.join(missing)}, which its index names")
        return files
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    if not files:
        raise ValueError(f"{folder} holds no .safetensors file and no pytorch_model.bin")
    return files


def _config(folder: pathlib.Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError:
        return {}  # it only adds names of parts
    return content if isinstance(content, dict) else {}


def _open_file(path: pathlib.Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a readable checkpoint: {error}") from error


def _read_pickle(path: pathlib.Path) -> dict[str, Any]:
    try:
        content = _load(path)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged, or holds more than tensors and plain values, which is not read"
        ) from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} holds a {type(content).__name__}, not a state_dict")
    return dict(_flat("", content, 0))


def _load(path: pathlib.Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:  # files of the older format cannot be mapped
        return torch.load(path, map_location="cpu", weights_only=True)


def _flat(prefix: str, content: Mapping[Any, Any], depth: int) -> Iterator[tuple[str, Any]]:
    if depth > DEPTH:
        raise ValueError(f"the checkpoint nests dictionaries more than {DEPTH} deep, or in a circle")
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(f"{name}.", value, depth + 1)
        else:
            yield name, value


def as_dense(value: Any) -> tuple[Tensor | None, str]:
    """Return a tensor as float32 or better, or None and the reason why it holds no neurons."""
    if not isinstance(value, Tensor):
        return None, "not a tensor"
    if value.ndim < 2:
        return None, ""
    if value.layout != torch.strided:
        return None, f"a tensor of layout {value.layout} is not read"
    if value.is_meta:
        return None, "a tensor on the meta device has no values"
    if not value.is_floating_point():
        return None, f"{value.dtype} is no floating-point type"
    if value.numel() * value.element_size() > 4 * value.untyped_storage().nbytes():
        return None, f"a tensor of {tuple(value.shape)} that repeats {value.untyped_storage().nbytes()} bytes"
    wide = torch.float64 if value.dtype == torch.float64 else torch.float32
    return value.to(wide), ""
