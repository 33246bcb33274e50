"""Errors of readers. They name the file, what was found, what was expected and how to get a good file."""

from pathlib import Path


class DataError(ValueError):
    """A dataset cannot be read; the message names the file, what was expected and the remedy.

    >>> try:
    ...     hs.data.open_source((torch.zeros(2, 8, 8), ["ann", "ann"]))
    ... except DataError as error:
    ...     print(error)
    the arrays holds one identity (ann); at least 2 are needed
    """


class CorruptDataError(DataError):
    """A file that exists but is truncated, has another format, or leaves the data root.

    >>> hs.data.open_source((torch.zeros(3, 8, 8), ["ann", "bob"]))
    Traceback (most recent call last):
    hypersphere.data.errors.CorruptDataError: the arrays: labels must be 3 whole numbers or texts, one for each ...
    """


class MissingDataError(DataError, FileNotFoundError):
    """No data root holds the dataset, or one of its files is absent.

    >>> try:
    ...     hs.data.MNIST(root="an/empty/folder")
    ... except MissingDataError as error:
    ...     print(error)
    mnist is not in an/empty/folder/mnist: expected ... get it with `hypersphere data get mnist` ...
    """


class UnusableSampleError(DataError):
    """A sample that can be read but does not hold what is looked for, such as a photograph without a face.

    >>> raise UnusableSampleError("no face was found in wall.png")
    Traceback (most recent call last):
    ...
    hypersphere.data.errors.UnusableSampleError: no face was found in wall.png
    """


def corrupt(path: Path | str, found: str, expected: str, remedy: str = "") -> CorruptDataError:
    """Return the error to raise for a damaged file.

    >>> print(corrupt("t10k-labels-idx1-ubyte", "magic number 0x803", "0x801", "`hypersphere data get mnist --force` gets it anew"))
    t10k-labels-idx1-ubyte: found magic number 0x803, expected 0x801; `hypersphere data get mnist --force` gets it anew
    """
    return CorruptDataError(f"{path}: found {found}, expected {expected}" + (f"; {remedy}" if remedy else ""))
