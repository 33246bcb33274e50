import csv
import os

import pytest

from hypersphere.evaluation.score_calibration import LogisticCalibration
from hypersphere.recognition import Album, Gallery, export_folder, export_gallery, export_table
from tests.recognition.test_album import flat, photographs

STEEP = LogisticCalibration(slope=300.0, offset=-290.0)


@pytest.fixture
def album(tmp_path):
    photographs(tmp_path / "photos")
    with Album(tmp_path / "party.album") as made:
        made.add(tmp_path / "photos", flat(), calibration=STEEP)
        made.name(made.groups()[0].id, "Ada / Lovelace")
        yield made


def test_the_table_has_one_row_per_sample(album, tmp_path):
    assert export_table(album, tmp_path / "groups.csv") == 12
    with open(tmp_path / "groups.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "box", "group", "name"]
    assert sorted(row["name"] for row in rows) == [""] * 9 + ["Ada / Lovelace"] * 3
    assert all(os.path.isfile(row["path"]) for row in rows)


@pytest.mark.parametrize("how", ["link", "copy"])
def test_one_folder_per_person(album, tmp_path, how):
    assert export_folder(album, tmp_path / "people", how) == 12
    assert export_folder(album, tmp_path / "people", how) == 0  # a second export writes nothing
    folders = sorted(path.name for path in (tmp_path / "people").iterdir())
    assert folders[0] == "Ada _ Lovelace"
    assert len(folders) == 4
    files = list((tmp_path / "people" / "Ada _ Lovelace").iterdir())
    assert len(files) == 3
    assert all(path.is_symlink() == (how == "link") for path in files)
    assert all(path.read_bytes() for path in files)
    assert export_folder(album, tmp_path / "named", how, named_only=True) == 3


def test_a_gallery_of_the_named(album, tmp_path):
    model = flat()
    with Gallery(tmp_path / "known.db", model) as gallery:
        assert export_gallery(album, gallery) == {"Ada / Lovelace": 3}
        assert export_gallery(album, gallery) == {"Ada / Lovelace": 3}
        assert gallery.list() == {"Ada / Lovelace": 3}
        group = next(group for group in album.groups() if group.name)
        path = album.members(group.id)[0].path
        assert gallery.identify(path, threshold=0.99)[0].name == "Ada / Lovelace"


def test_without_names_there_is_nothing_to_enrol(album, tmp_path):
    album.undo()
    with Gallery(tmp_path / "known.db", flat()) as gallery, pytest.raises(ValueError, match="no named group"):
        export_gallery(album, gallery)
