"""Photographs of LFW in folders, one per person, for tests that need real faces."""

import os
import pathlib
import tarfile

import pytest

from hypersphere.models import FetchError, fetch_model


def find_network(name):
    """Return the file of a pretrained network; skip the test if it cannot be fetched."""
    try:
        return fetch_model(name)
    except FetchError as error:
        pytest.skip(f"the weights of {name} cannot be fetched: {error}")


def extract_people(folder, *, pictures=None, select=None):
    """Write photographs into one folder per person and return the folders: the first ``pictures``, or those that ``select`` accepts.

    ``select`` gets the name of a file, such as ``Aaron_Peirsol_0001.jpg``.
    """
    root = pathlib.Path(os.environ.get("HYPERSPHERE_DATA", pathlib.Path(__file__).parents[3] / "shared" / "data"))
    path = root / "lfw" / "lfw_deepfunneled_crop128.tar.xz"
    if not path.is_file():
        pytest.skip("LFW is not here; set HYPERSPHERE_DATA")
    count = 0
    with tarfile.open(path) as archive:
        for member in archive:
            name = pathlib.Path(member.name).name
            if not name.endswith(".jpg") or (select is not None and not select(name)):
                continue
            target = folder / name.rpartition("_")[0] / name
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(archive.extractfile(member).read())
            count += 1
            if count == pictures:
                break
    return sorted(folder.iterdir())
