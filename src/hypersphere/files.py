"""Atomic writing of files, and trees of tensors and numbers as safetensors files without pickles."""

import hashlib
import json
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Collection, Mapping
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

FORMAT = "hypersphere-state/2"
"""Key of the tree in the header of a file of :func:`save_tree`."""
CHECKSUMS = "hypersphere-tensors/1"
"""Key of the checksums in the header of a file of :func:`save_tensors`."""


def write_atomically(path: str | os.PathLike[str], write: Callable[[str], object], *, private: bool = False) -> None:
    """Write a file atomically: a reader sees either the old or the new content, never a part.

    When this returns, the content and the new name are on the disk.

    Args:
        path: The file.
        write: Writes the content to the temporary path that it is called with.
        private: Whether only the owner of the file can read it.

    Raises:
        OSError: If the file cannot be written, such as on a full disk. The old file is unchanged, and temporary files are
            deleted.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(f"{folder}/a.bin", lambda temporary: pathlib.Path(temporary).write_bytes(b"whole"))
    ...     [(path.name, path.read_bytes()) for path in pathlib.Path(folder).iterdir()]
    [('a.bin', b'whole')]
    """
    target = pathlib.Path(path)
    # Write into a temporary folder, because some writers create more temporary files, which remain if the process is killed.
    temporary_folder = target.with_name(f".{target.name}.{os.getpid()}.part")
    temporary = str(temporary_folder / target.name)
    try:
        remove_leftovers(target.parent, {target.name}, skip_running=True)
        temporary_folder.mkdir(0o700)
        pathlib.Path(temporary).touch(0o600 if private else 0o666)
        mode = os.stat(temporary).st_mode  # includes the user's umask, which some writers ignore
        write(temporary)
        os.chmod(temporary, mode)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
        shutil.rmtree(temporary_folder, ignore_errors=True)
        _sync_folder(target.parent)
    except BaseException as error:
        shutil.rmtree(temporary_folder, ignore_errors=True)
        if isinstance(error, SafetensorError):  # safetensors raises it if the disk is full
            raise OSError(f"{target} cannot be written: {error}") from error
        if isinstance(error, OSError) and error.errno is not None and error.strerror:
            raise OSError(error.errno, f"{target} cannot be written: {error.strerror}") from error
        raise


def write_text(path: str | os.PathLike[str], text: str, *, private: bool = False) -> None:
    """Write text atomically. Only its owner can read a ``private`` file.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(pathlib.Path(folder) / "a.txt", "whole or not at all")
    ...     (pathlib.Path(folder) / "a.txt").read_text()
    'whole or not at all'
    """
    write_atomically(
        path, lambda temporary: pathlib.Path(temporary).write_text(text, encoding="utf-8"), private=private
    )


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write JSON atomically. Numbers that are not finite become null, because JSON has no such numbers.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(pathlib.Path(folder) / "a.json", {"eer": 0.04})
    ...     (pathlib.Path(folder) / "a.json").read_text().split()
    ['{', '"eer":', '0.04', '}']
    """
    write_text(path, json.dumps(replace_nonfinite(value), indent=1, allow_nan=False) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the content of a JSON file, or None if there is no such file.

    Raises:
        ValueError: If the file is not JSON.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(pathlib.Path(folder) / "a.json", {"eer": 0.04})
    ...     read_json(pathlib.Path(folder) / "a.json"), read_json(pathlib.Path(folder) / "b.json")
    ({'eer': 0.04}, None)
    """
    try:
        content = pathlib.Path(path).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not readable as JSON: {error}") from error


def replace_nonfinite(value: Any) -> Any:
    """Replace NaN and infinity by None in nested values, for JSON.

    >>> replace_nonfinite({"energy": float("inf"), "angles": (1.5, float("nan"))})
    {'energy': None, 'angles': [1.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: replace_nonfinite(item) for key, item in value.items()}
    return [replace_nonfinite(item) for item in value] if isinstance(value, list | tuple) else value


def save_tree(tree: Any, path: str | os.PathLike[str], *, private: bool = False) -> None:
    """Write nested dicts, lists and tuples of tensors, numbers, strings and None atomically.

    Tensors are stored bit by bit; the rest is JSON in the header of the file. Only its owner can read a ``private`` file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tree({"step": 3, "weight": torch.ones(2)}, f"{folder}/state.safetensors")
    ...     load_tree(f"{folder}/state.safetensors")
    {'step': 3, 'weight': tensor([1., 1.])}
    """
    tensors: dict[str, Tensor] = {}
    packed = _pack(tree, "", tensors)
    # Use one entry of the header: several have no fixed order, so equal trees would give different files.
    header = json.dumps({"sha256": checksum(packed, tensors), "tree": packed})
    write_atomically(
        path, lambda temporary: safetensors.torch.save_file(tensors, temporary, {FORMAT: header}), private=private
    )


def load_tree(path: str | os.PathLike[str]) -> Any:
    """Load a file of :func:`save_tree` to the CPU.

    Raises:
        ValueError: If there is no such file, or it has another format, was changed or is damaged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tree([1, "two"], f"{folder}/state.safetensors")
    ...     load_tree(f"{folder}/state.safetensors")
    [1, 'two']
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if FORMAT not in metadata:
            raise ValueError("the header has no tree of this format")
        header = json.loads(metadata[FORMAT])
        if header["sha256"] != checksum(header["tree"], tensors):
            raise ValueError("the checksum does not match, so the file was changed or damaged")
        return _unpack(header["tree"], tensors)
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}") from error
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a complete checkpoint of format {FORMAT}: {error}") from error


def save_tensors(tensors: Mapping[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Write named tensors to a safetensors file, atomically, with a checksum of each tensor in the header.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tensors({"weight": torch.eye(2)}, f"{folder}/layer.safetensors")
    ...     safetensors.torch.load_file(f"{folder}/layer.safetensors")["weight"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    checksums = json.dumps({name: checksum(name, {name: tensor}) for name, tensor in plain.items()})
    write_atomically(path, lambda temporary: safetensors.torch.save_file(plain, temporary, {CHECKSUMS: checksums}))


def read_tensor(file: Any, name: str) -> Tensor:
    """Read one tensor of an open safetensors file, and check it if the file has checksums.

    Raises:
        ValueError: If the tensor does not match its checksum.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tensors({"weight": torch.eye(2), "bias": torch.zeros(2)}, f"{folder}/layer.safetensors")
    ...     with safe_open(f"{folder}/layer.safetensors", framework="pt") as file:
    ...         read_tensor(file, "bias")
    tensor([0., 0.])
    """
    tensor: Tensor = file.get_tensor(name)
    checksums = (file.metadata() or {}).get(CHECKSUMS)
    if checksums is not None:
        try:
            expected = json.loads(checksums)[name]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"the checksum of {name} is missing, so the file was changed or damaged") from error
        if expected != checksum(name, {name: tensor}):
            raise ValueError(f"{name} does not match its checksum, so the file was changed or damaged")
    return tensor


def load_tensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Load all tensors of a safetensors file, and check them if the file has checksums.

    Raises:
        ValueError: If the file cannot be read, lacks a tensor, or a tensor does not match its checksum.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tensors({"bias": torch.zeros(2)}, f"{folder}/layer.safetensors")
    ...     load_tensors(f"{folder}/layer.safetensors")
    {'bias': tensor([0., 0.])}
    """
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            tensors = {name: read_tensor(file, name) for name in names}
            missing = set(json.loads((file.metadata() or {}).get(CHECKSUMS, "{}"))) - set(names)
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from error
    if missing:
        raise ValueError(f"{path} lacks {', '.join(sorted(missing)[:4])}, so it was changed or damaged")
    return tensors


def checksum(content: Any, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of JSON content and of tensors with their names, dtypes and shapes, sorted by name.

    >>> checksum({}, {"a": torch.zeros(2)}) == checksum({}, {"a": torch.zeros(2)})
    True
    """
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        plain = tensor.detach().cpu().contiguous().flatten()
        digest.update(plain.view(torch.uint8).numpy().data if plain.numel() else b"")
    return digest.hexdigest()


def is_finite(tree: Any) -> bool:
    """Return whether all floating-point tensors and numbers of a tree are finite.

    >>> is_finite({"a": [torch.ones(2)]}), is_finite({"a": torch.tensor(float("nan"))})
    (True, False)
    """
    if isinstance(tree, Tensor):
        return not tree.is_floating_point() or bool(tree.isfinite().all())
    if isinstance(tree, Mapping):
        return all(is_finite(value) for value in tree.values())
    if isinstance(tree, list | tuple):
        return all(is_finite(value) for value in tree)
    return not isinstance(tree, float) or math.isfinite(tree)


def remove_leftovers(folder: str | os.PathLike[str], names: Collection[str], *, skip_running: bool = False) -> None:
    """Delete the temporary files that killed calls of :func:`write_atomically` left in a folder.

    Args:
        folder: The folder.
        names: Names of the files that were written.
        skip_running: Whether to keep the temporary files of running processes. It may be False only if no other process
            writes these files.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (pathlib.Path(folder) / ".a.txt.123.part").mkdir()  # as process 123 left it when it was killed
    ...     remove_leftovers(folder, {"a.txt"})
    ...     list(pathlib.Path(folder).iterdir())
    []
    """
    for leftover in pathlib.Path(folder).glob(".*.part"):
        name, _, writer = leftover.name[1 : -len(".part")].rpartition(".")
        if name not in names or not writer.isdecimal() or (skip_running and is_running(int(writer))):
            continue
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


# Each node is a list [kind, content], because JSON has neither tuples nor integer keys.
def _pack(tree: Any, name: str, tensors: dict[str, Tensor]) -> list[Any]:
    if isinstance(tree, Tensor):
        key = name or "tensor"
        # Clone, because the format does not support tensors that share memory.
        tensors[key] = tree.detach().cpu().contiguous().clone()
        return ["tensor", key]
    if isinstance(tree, dict):
        return ["dict", [[key, _pack(value, f"{name}.{key}".lstrip("."), tensors)] for key, value in tree.items()]]
    if isinstance(tree, list | tuple):
        return [type(tree).__name__, [_pack(value, f"{name}.{i}".lstrip("."), tensors) for i, value in enumerate(tree)]]
    if tree is None or isinstance(tree, bool | int | float | str):
        return ["value", tree]
    raise ValueError(f"{name or 'the tree'} must hold tensors, numbers, strings and None, got {type(tree).__name__}")


def _unpack(node: list[Any], tensors: dict[str, Tensor]) -> Any:
    kind, content = node
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _unpack(value, tensors) for key, value in content}
    if kind in ("list", "tuple"):
        values = [_unpack(value, tensors) for value in content]
        return values if kind == "list" else tuple(values)
    if kind == "value":
        return content
    raise ValueError(f"unknown kind {kind!r}")


def _sync_folder(folder: pathlib.Path) -> None:
    if os.name == "posix":  # other systems cannot open a folder; renaming is atomic there, too
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_running(process: int) -> bool:
    """Return whether another process with this id is running on this machine.

    >>> is_running(os.getpid())
    False
    """
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return process != os.getpid()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that the memory of Python, the CPU or a GPU is exhausted.

    Python and CUDA have exception types for it. The CPU allocator of torch raises a plain ``RuntimeError``, which only its
    message identifies.

    Args:
        error: The exception that was caught.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("memory format must be contiguous"))
    (True, False)
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    allocator = ("DefaultCPUAllocator", "Storage size calculation overflowed", "not enough memory")
    return isinstance(error, RuntimeError) and any(words in str(error) for words in allocator)
