"""Read NumPy and HDF5 files safely: no pickles, no links."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .._extras import require
from .roots import Folder

Arrays = dict[str, np.ndarray]


def read_npz(folder: Folder, path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> Arrays:
    """Return the named arrays of an ``.npz`` file. Other members are not read, so a pickled member is never loaded."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in (*required, *optional) if name in stored.files or name in required}
    except Exception as error:  # a damaged file can raise any exception; its reason becomes part of the message
        raise folder.make_corrupt_error(
            path, f"{type(error).__name__}: {error}", f"an .npz with plain arrays {', '.join(required)}"
        ) from error


def read_npy(folder: Folder, path: Path) -> np.ndarray:
    """Return the array of an ``.npy`` file."""
    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # as above
        raise folder.make_corrupt_error(path, f"{type(error).__name__}: {error}", "a plain .npy array") from error


def read_h5(folder: Folder, path: Path, names: Sequence[str]) -> Arrays:
    """Return the named datasets of an HDF5 file. Links and external files are refused."""
    h5py = require("h5py")
    try:
        with h5py.File(path, "r") as file:
            arrays = {}
            for name in names:
                if not isinstance(file.get(name, getlink=True), h5py.HardLink):
                    raise ValueError(f"{name} is a link")
                stored = file[name]
                if stored.external or stored.is_virtual:
                    raise ValueError(f"{name} is kept in another file")
                arrays[name] = stored[()]
            return arrays
    except Exception as error:  # as above
        raise folder.make_corrupt_error(
            path, f"{type(error).__name__}: {error}", f"an HDF5 file with datasets {', '.join(names)}"
        ) from error
