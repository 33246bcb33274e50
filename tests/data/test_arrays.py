import h5py
import numpy as np
import pytest

from hypersphere.data import CATALOG, CorruptDataError
from hypersphere.data.arrays import read_h5, read_npy, read_npz
from hypersphere.data.roots import Folder


@pytest.fixture
def folder(tmp_path):
    return Folder(CATALOG["modelnet40"], tmp_path)


def test_npz_gives_the_named_arrays_only(folder):
    np.savez(folder.path / "x.npz", a=np.arange(3), b=np.array([{}], dtype=object))
    assert list(read_npz(folder, folder.path / "x.npz", ("a",), ("c",))) == ["a"]


@pytest.mark.parametrize("name", ["b", "c"])
def test_npz_refuses_pickles_and_absent_arrays(folder, name):
    np.savez(folder.path / "x.npz", a=np.arange(3), b=np.array([{}], dtype=object))
    with pytest.raises(CorruptDataError, match=rf"x\.npz: found .*expected an \.npz with plain arrays {name}"):
        read_npz(folder, folder.path / "x.npz", (name,))


def test_npy_refuses_pickles_and_other_files(folder):
    np.save(folder.path / "x.npy", np.array([{}], dtype=object))
    with pytest.raises(CorruptDataError, match=r"expected a plain \.npy array"):
        read_npy(folder, folder.path / "x.npy")
    (folder.path / "x.npy").write_bytes(b"\x80\x04N.")
    with pytest.raises(CorruptDataError, match=r"expected a plain \.npy array"):
        read_npy(folder, folder.path / "x.npy")


def test_h5_reads_nothing_of_other_files(folder):
    path = folder.path / "x.h5"
    secret = folder.path / "secret.raw"
    secret.write_bytes(bytes(8))
    with h5py.File(folder.path / "other.h5", "w") as other:
        other["data"] = np.arange(3)
    with h5py.File(path, "w") as file:
        file["plain"] = np.arange(3)
        file["external"] = h5py.ExternalLink("other.h5", "data")
        file["soft"] = h5py.SoftLink("/plain")
        file.create_dataset("raw", (8,), "u1", external=[(str(secret), 0, 8)])
        layout = h5py.VirtualLayout((3,), "i8")
        layout[:] = h5py.VirtualSource("other.h5", "data", (3,))
        file.create_virtual_dataset("virtual", layout)
    assert read_h5(folder, path, ["plain"])["plain"].tolist() == [0, 1, 2]
    for name, reason in {
        "external": "a link",
        "soft": "a link",
        "raw": "another file",
        "virtual": "another file",
        "none": "a link",
    }.items():
        with pytest.raises(CorruptDataError, match=rf"x\.h5: found ValueError: {name} is .*{reason}"):
            read_h5(folder, path, [name])
