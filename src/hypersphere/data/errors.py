"""Errors of dataset readers. Messages name the file, its content, the expected content and the remedy."""

from pathlib import Path


class DataError(ValueError):
    """A dataset that cannot be read. The message names the file, what was expected and the remedy.

    >>> try:
    ...     hs.data.open_source((torch.zeros(2, 8, 8), ["ann", "ann"]))
    ... except DataError as error:
    ...     print(error)
    the arrays holds one identity (ann); at least 2 are needed
    """


class CorruptDataError(DataError):
    """A file that is truncated, has the wrong format, or lies outside the data root.

    >>> hs.data.open_source((torch.zeros(3, 8, 8), ["ann", "bob"]))
    Traceback (most recent call last):
    hypersphere.data.errors.CorruptDataError: the arrays: labels must be 3 whole numbers or texts, one for each ...
    """


class MissingDataError(DataError, FileNotFoundError):
    """A dataset that is in no data root, or that lacks a file.

    >>> try:
    ...     hs.data.MNIST(root="an/empty/folder")
    ... except MissingDataError as error:
    ...     print(error)
    mnist is not in an/empty/folder/mnist: expected ... get it with `hypersphere data get mnist` ...
    """


class UnusableSampleError(DataError):
    """A readable sample without usable content, such as a photograph without a face.

    >>> raise UnusableSampleError("no face was found in wall.png")
    Traceback (most recent call last):
    ...
    hypersphere.data.errors.UnusableSampleError: no face was found in wall.png
    """


def make_corrupt_error(path: Path | str, found: str, expected: str, remedy: str = "") -> CorruptDataError:
    """Return the error to raise for a damaged file.

    >>> print(make_corrupt_error("t10k-labels-idx1-ubyte", "magic number 0x803", "0x801", "delete it"))
    t10k-labels-idx1-ubyte: found magic number 0x803, expected 0x801; delete it
    """
    return CorruptDataError(f"{path}: found {found}, expected {expected}" + (f"; {remedy}" if remedy else ""))
