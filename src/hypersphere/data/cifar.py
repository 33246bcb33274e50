"""CIFAR-10 and CIFAR-100 in all common formats: binary records, pickled Python batches and PNG sheets."""

import io
import json
import pickle
import pickletools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, UInt8

from .class_names import CIFAR10_NAMES, CIFAR100_COARSE, CIFAR100_FINE
from .images import read_bytes
from .in_memory import InMemory
from .roots import Folder, Root, find_folder

_PIXELS = 3 * 32 * 32
_MAX_BATCH_BYTES = 1 << 28  # upper bound per file; the largest batch has 155 million bytes
Batch = tuple[UInt8[np.ndarray, "n 3072"], Int[np.ndarray, "n"]]


class CIFAR10(InMemory):
    """50,000 training (``train``) or 10,000 test images, uint8 (n, 3, 32, 32).

    Read from ``cifar10/`` below a data root: ``data_batch_1 … 5`` and ``test_batch`` as binary records (``.bin``), as pickled
    Python batches (no ending; the unpickler accepts only arrays and containers), or as PNG sheets with one image per row
    (``.png``, with ``train_lables.json`` and ``test_lables.json``, which are spelled this way in the package).

    >>> images = CIFAR10(train=False)  # doctest: +SKIP
    >>> images.data.shape, images.classes[:2]  # doctest: +SKIP
    (torch.Size([10000, 3, 32, 32]), ('airplane', 'automobile'))
    """

    def __init__(self, root: Root = None, train: bool = True):
        folder = find_folder("cifar10", root)
        stems = [f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]
        if folder.find_file(stems[0] + ".bin"):
            batches = [
                _read_binary(folder, folder.get_file(stem + ".bin"), columns=1, column=0, classes=10) for stem in stems
            ]
        elif folder.find_file(stems[0] + ".png"):
            batches = [
                _read_sheets(folder, [folder.get_file(stem + ".png") for stem in stems], "train" if train else "test")
            ]
        else:
            batches = [
                _read_python_batch(folder, folder.get_file(stem, stem + ".bin", stem + ".png"), b"labels", classes=10)
                for stem in stems
            ]
        counts = [len(labels) for _, labels in batches]
        if len(set(counts)) != 1:
            raise folder.make_corrupt_error(folder.path, f"batches of {counts} images", "batches of one length")
        super().__init__(*_concatenate(batches), CIFAR10_NAMES)


class CIFAR100(InMemory):
    """50,000 training (``train``) or 10,000 test images, uint8 (n, 3, 32, 32), in 100 classes, or 20 superclasses (``coarse``).

    Read from ``cifar100/{train,test}.bin`` (binary) or ``cifar100/{train,test}`` (pickled Python batches) below a data root.

    >>> images = CIFAR100(train=False, coarse=True)  # doctest: +SKIP
    >>> images.data.shape, len(images.classes)  # doctest: +SKIP
    (torch.Size([10000, 3, 32, 32]), 20)
    """

    def __init__(self, root: Root = None, train: bool = True, coarse: bool = False):
        folder = find_folder("cifar100", root)
        stem, classes = "train" if train else "test", CIFAR100_COARSE if coarse else CIFAR100_FINE
        if folder.find_file(stem + ".bin"):
            batch = _read_binary(
                folder, folder.get_file(stem + ".bin"), columns=2, column=0 if coarse else 1, classes=len(classes)
            )
        else:
            batch = _read_python_batch(
                folder,
                folder.get_file(stem, stem + ".bin"),
                b"coarse_labels" if coarse else b"fine_labels",
                len(classes),
            )
        super().__init__(*_concatenate([batch]), classes)


def _concatenate(batches: Sequence[Batch]) -> tuple[torch.Tensor, torch.Tensor]:
    data = np.concatenate([pixels for pixels, _ in batches]).reshape(-1, 3, 32, 32)
    return torch.from_numpy(data), torch.from_numpy(np.concatenate([labels for _, labels in batches]).astype(np.int64))


def _read_binary(folder: Folder, path: Path, columns: int, column: int, classes: int) -> Batch:
    """Read records of ``columns`` label bytes and 3,072 pixels."""
    content = np.frombuffer(path.read_bytes(), np.uint8)
    record = columns + _PIXELS
    if len(content) == 0 or len(content) % record:
        raise folder.make_corrupt_error(path, f"{len(content)} bytes", f"a multiple of {record}")
    content = content.reshape(-1, record)
    return content[:, columns:], _check_labels(folder, path, content[:, column].tolist(), len(content), classes)


def _read_sheets(folder: Folder, paths: Sequence[Path], split: str) -> Batch:
    """Read PNG sheets, in which each row of 1,024 pixels is one image, and one JSON list of all labels."""
    rows = []
    for path in paths:
        image = folder.decode(path.read_bytes(), path)
        if image.width != 1024:
            raise folder.make_corrupt_error(path, f"rows of {image.width} pixels", "1024, one 32×32 image per row")
        rows.append(np.asarray(image).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2).reshape(-1, _PIXELS))
    pixels = np.concatenate(rows)
    path = folder.get_file(f"{split}_lables.json", f"{split}_labels.json")
    try:
        labels = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise folder.make_corrupt_error(path, f"no JSON ({error})", "a list of labels") from error
    return pixels, _check_labels(folder, path, labels, len(pixels), 10)


def _read_python_batch(folder: Folder, path: Path, key: bytes, classes: int) -> Batch:
    """Read a pickled dictionary with ``b"data"``, (n, 3072) bytes, and a list of labels."""
    try:
        content = read_bytes(path, _MAX_BATCH_BYTES)
        _check_allocations(content)
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        pixels, labels = batch[b"data"], batch[key]
    except Exception as error:  # a damaged pickle can raise any exception; its reason becomes part of the message
        expected = f"a python batch with data and {key.decode()}"
        raise folder.make_corrupt_error(path, f"{type(error).__name__}: {error}", expected) from error
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise folder.make_corrupt_error(
            path, f"data of {getattr(pixels, 'shape', type(pixels))}", f"uint8 of (n, {_PIXELS})"
        )
    return pixels, _check_labels(folder, path, labels, len(pixels), classes)


def _check_labels(folder: Folder, path: Path, labels: Any, count: int, classes: int) -> Int[np.ndarray, "n"]:
    if not isinstance(labels, list) or len(labels) != count:
        raise folder.make_corrupt_error(
            path, f"{len(labels) if isinstance(labels, list) else 'no'} labels", f"a list of {count}"
        )
    wrong = next((label for label in labels if type(label) is not int or not 0 <= label < classes), None)
    if wrong is not None:
        raise folder.make_corrupt_error(path, f"label {wrong!r}", f"integers 0 … {classes - 1}")
    return np.array(labels, dtype=np.int64)


def _check_allocations(content: bytes) -> None:
    """Refuse a pickle that would allocate much more memory than its size.

    An unpickler allocates a memo up to the largest index that the file names, and buffers of the lengths that it names.
    ``genops`` reads the operations without executing them, and refuses lengths beyond the end of the file.
    """
    for count, (operation, argument, _) in enumerate(pickletools.genops(content)):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > count:
            raise pickle.UnpicklingError(f"memo index {argument} after {count} operations")


class _Unpickler(pickle.Unpickler):
    """An unpickler that accepts only arrays of bytes and containers, so a pickle cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        package, _, rest = module.partition(".")
        known = {
            ("numpy", "", "ndarray"): "ndarray",  # only passed to _reconstruct
            ("numpy", "", "dtype"): _check_byte_type,
            ("numpy", "multiarray", "_reconstruct"): lambda kind, shape, code: np.empty(0, dtype=np.uint8),
            ("numpy", "numeric", "_frombuffer"): _read_bytes_array,
            # Python 3 writes bytes in protocol 2 as latin1 text.
            ("_codecs", "", "encode"): lambda text, encoding: text.encode("latin1"),
        }
        result = known.get((package, rest.removeprefix("_core.").removeprefix("core."), name))
        if result is None:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of a CIFAR batch")
        return result


def _read_bytes_array(data: bytes | bytearray, dtype: Any, shape: tuple[int, ...], order: str) -> np.ndarray:
    return np.frombuffer(data, np.uint8).reshape(shape)


def _check_byte_type(code: str | bytes, *_: Any) -> "np.dtype[np.uint8]":
    if code not in ("u1", b"u1"):
        raise pickle.UnpicklingError(f"an array of {code!r} where bytes were expected")
    return np.dtype(np.uint8)
