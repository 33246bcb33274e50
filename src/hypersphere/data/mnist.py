"""MNIST and Fashion-MNIST: the IDX format, compressed or not."""

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8

from .archive import MAX_FILE_BYTES
from .class_names import FASHION_NAMES
from .in_memory import InMemory
from .roots import Folder, Root, find_folder

_UBYTE = 0x08  # the format's code for unsigned bytes, the only type these datasets use


class MNIST(InMemory):
    """60,000 training (``train``) or 10,000 test digits, uint8 (n, 1, 28, 28).

    Read from ``mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte`` below a data root; the files may be compressed (``.gz``).

    >>> digits = MNIST(train=False)  # doctest: +SKIP
    >>> digits.data.shape, digits.data.dtype  # doctest: +SKIP
    (torch.Size([10000, 1, 28, 28]), torch.uint8)
    """

    name = "mnist"
    names: tuple[str, ...] = tuple("0123456789")

    def __init__(self, root: Root = None, train: bool = True):
        folder = find_folder(self.name, root)
        split = "train" if train else "t10k"
        image_file, label_file = f"{split}-images-idx3-ubyte", f"{split}-labels-idx1-ubyte"
        images, labels = read_idx(folder, image_file, dims=3), read_idx(folder, label_file, dims=1)
        if images.shape[1:] != (28, 28):
            raise folder.make_corrupt_error(folder.path / image_file, f"images of {images.shape[1:]}", "28×28")
        if len(labels) != len(images):
            expected = f"one for each of {len(images)} images"
            raise folder.make_corrupt_error(folder.path / label_file, f"{len(labels)} labels", expected)
        if len(labels) and labels.max() > 9:
            raise folder.make_corrupt_error(folder.path / label_file, f"label {labels.max()}", "labels 0 … 9")
        super().__init__(torch.from_numpy(images)[:, None], torch.from_numpy(labels).long(), self.names)


class FashionMNIST(MNIST):
    """60,000 training (``train``) or 10,000 test articles of clothing, uint8 (n, 1, 28, 28).

    Read from ``fashion_mnist/`` below a data root; the files have the names of :class:`MNIST`.

    >>> articles = FashionMNIST(train=False)  # doctest: +SKIP
    >>> len(articles), articles.classes[:2]  # doctest: +SKIP
    (10000, ('t-shirt/top', 'trouser'))
    """

    name = "fashion_mnist"
    names = FASHION_NAMES


def read_idx(folder: Folder, name: str, dims: int) -> UInt8[np.ndarray, "..."]:
    """Return the array in an IDX file, which holds a magic number, the sizes, and one byte per entry."""
    path = folder.get_file(name, name + ".gz")
    content = _read_content(folder, path)
    magic = content[:4]
    if magic != bytes([0, 0, _UBYTE, dims]):
        raise folder.make_corrupt_error(
            path, f"magic number 0x{magic.hex()}", f"0x{bytes([0, 0, _UBYTE, dims]).hex()} (bytes in {dims} dimensions)"
        )
    header = 4 + 4 * dims
    if len(content) < header:
        raise folder.make_corrupt_error(path, f"{len(content)} bytes", f"a header of {header}")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", dims, 4))
    if len(content) != header + prod(shape):
        raise folder.make_corrupt_error(path, f"{len(content)} bytes", f"{header + prod(shape)} for sizes {shape}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()


def _read_content(folder: Folder, path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            # read_idx rejects a file that is cut off here, because its length does not match its header.
            return file.read(MAX_FILE_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise folder.make_corrupt_error(path, f"a damaged gzip file ({error})", "a complete gzip file") from error
