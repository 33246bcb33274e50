import os
import re

import numpy as np
import pytest
import torch

from hypersphere.data import CorruptDataError, archived_pictures, roots
from hypersphere.data.catalog import CATALOG

from .files import encoded, random, tar

WANTED = re.compile(r"pictures/([^/]+)\.png$")


@pytest.fixture
def made(tmp_path, monkeypatch):
    """An archive of six pictures, which are cached; ``read`` counts the decoded pictures."""
    monkeypatch.setenv("HYPERSPHERE_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(archived_pictures, "MIN_PICTURES_TO_CACHE", 6)
    archive = tmp_path / "root" / "set.tar.xz"
    pictures = random(6, 4, 5)
    files = {f"pictures/{i}.png": encoded(pictures[i]) for i in (3, 0, 5, 1, 4, 2)}
    tar(archive, {**files, "list.txt": "Zoë\n".encode(), "other.bin": b"x"})
    folder = roots.Folder(CATALOG["omniglot"], archive.parent)
    decoded = []

    def read(setting=None, source=archive):
        def prepare(name, content):
            decoded.append(name)
            return np.asarray(folder.decode(content, name, "L"))[None]

        return archived_pictures.read_archived_pictures(
            folder, source, WANTED, prepare, setting, "pictures/", ("list.txt",)
        )

    read.pictures, read.archive, read.decoded, read.kept = pictures, archive, decoded, tmp_path / "kept"
    return read


def test_the_second_read_uses_the_cache(made):
    first = made()
    assert len(made.decoded) == 6
    second = made()
    assert len(made.decoded) == 6
    for result in (first, second):
        assert result.names == [f"pictures/{i}.png" for i in range(6)]
        assert torch.equal(result.data, torch.from_numpy(made.pictures)[:, None])
        assert result.texts == {"list.txt": "Zoë\n".encode()}


def test_another_setting_or_a_changed_source_is_decoded_again(made):
    made()
    made({"size": 3})
    assert len(made.decoded) == 12
    os.utime(made.archive, ns=(1, 1))
    made()
    assert len(made.decoded) == 18


def test_the_key_of_a_folder_depends_on_its_files(made, tmp_path):
    place = tmp_path / "root" / "unpacked"
    (place / "pictures").mkdir(parents=True)
    for i in range(6):
        (place / "pictures" / f"{i}.png").write_bytes(encoded(made.pictures[i]))
    for _ in range(2):
        made(source=place)
    assert len(made.decoded) == 6
    os.utime(place / "pictures" / "2.png", ns=(1, 1))
    made(source=place)
    assert len(made.decoded) == 12


def test_few_pictures_are_not_cached(made, monkeypatch):
    monkeypatch.setattr(archived_pictures, "MIN_PICTURES_TO_CACHE", 7)
    made()
    assert not made.kept.exists()


@pytest.mark.parametrize("at", [0.3, 0.6, 0.95])
def test_a_damaged_file_is_replaced(made, at):
    whole = made().data
    (file,) = made.kept.iterdir()
    content = bytearray(file.read_bytes())
    content[int(at * len(content))] ^= 1
    file.write_bytes(content)
    with pytest.warns(UserWarning, match="decoded again"):
        assert torch.equal(made().data, whole)
    assert torch.equal(made().data, whole)
    assert len(made.decoded) == 12


def test_a_folder_that_cannot_be_written_is_said(made, tmp_path):
    made.kept.write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="are not cached: .*HYPERSPHERE_CACHE"):
        assert len(made().names) == 6


def test_no_picture_and_an_odd_one_are_refused(made):
    tar(made.archive, {"list.txt": b""})
    with pytest.raises(CorruptDataError, match="no picture, expected pictures/"):
        made()
    tar(made.archive, {f"pictures/{i}.png": encoded(random(4, 5 + (i == 2))) for i in range(6)})
    with pytest.raises(CorruptDataError, match=r"pictures/2.png in images of sizes \[\(4, 5\), \(4, 6\)\]"):
        made()
