import os
from pathlib import Path

import pytest

from hypersphere.data import CorruptDataError, MissingDataError, data_roots
from hypersphere.data.roots import VARIABLE, find_folder, locate

from .files import write


def test_explicit_roots_come_before_the_environment(monkeypatch):
    monkeypatch.setenv(VARIABLE, os.pathsep.join(["/x", "", "y"]))
    assert data_roots() == (Path("/x"), Path("y"))
    assert data_roots("z") == (Path("z"),)
    assert data_roots(["a", Path("b")]) == (Path("a"), Path("b"))


def test_the_default_is_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_roots() == (tmp_path / "hypersphere",)
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_roots() == (Path.home() / ".cache" / "hypersphere",)


def test_the_first_root_with_the_dataset_is_used(tmp_path):
    for i in (1, 2):
        write(tmp_path / str(i) / "mnist", {"t10k-labels-idx1-ubyte.gz": b""})
    roots = [tmp_path / "0", tmp_path / "1", tmp_path / "2"]
    assert find_folder("mnist", roots).path == tmp_path / "1" / "mnist"
    assert locate("cifar10", roots) is None


def test_a_folder_is_not_accepted_as_a_file(tmp_path):
    (tmp_path / "train").mkdir()  # a folder, not the file of CIFAR-100 with this name
    assert locate("cifar100", tmp_path) is None


def test_an_absent_dataset_is_named_with_roots_and_remedy(tmp_path):
    with pytest.raises(
        MissingDataError,
        match=r"mnist is not in .*a/mnist, .*b/mnist: expected train-images.*hypersphere data get mnist",
    ):
        find_folder("mnist", [tmp_path / "a", tmp_path / "b"])


def test_a_dataset_folder_outside_the_root_is_refused(tmp_path):
    write(tmp_path / "elsewhere", {"train-images-idx3-ubyte": b""})
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "mnist").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptDataError, match="link out of the data root"):
        find_folder("mnist", tmp_path / "root")


def test_the_root_itself_may_be_a_link(tmp_path):
    write(tmp_path / "true" / "mnist", {"train-images-idx3-ubyte": b""})
    (tmp_path / "root").symlink_to(tmp_path / "true")
    assert find_folder("mnist", tmp_path / "root").get_file("train-images-idx3-ubyte").read_bytes() == b""
