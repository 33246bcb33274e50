import csv

from hypersphere.recognition import Album, Gallery
from hypersphere.recognition.stores.protection import write_key
from tests.processes import typed
from tests.recognition.test_album import photographs
from tests.recognition.test_album_export import STEEP, flat


def test_every_action(tmp_path):
    photographs(tmp_path / "photos")
    with Album(tmp_path / "party.album") as album:
        album.add(tmp_path / "photos", flat(), calibration=STEEP)
        groups = [group.id for group in album.groups()]
        samples = [sample.id for sample in album.members(groups[2])]

    def run(action, *words, status=0):
        done = typed("album", action, "party.album", *words, cwd=tmp_path, code=status)
        return done.stdout + done.stderr

    assert run("list").count("3 samples") == 4
    assert run("name", groups[0], "Ada").strip() == str(groups[0])
    assert "Ada" in run("list", "--json")
    assert run("merge", groups[0], groups[1]).strip() == str(groups[0])
    assert run("show", groups[0]).count(".png") == 6
    new = run("split", samples[0]).strip()
    assert run("show", new).count(".png") == 1
    run("reject", samples[1])
    assert "1 samples are in no group" in run("list")
    assert "is not group" in run("undo")
    assert "0 samples are in no group" in run("list")
    assert "(undone)" in run("history")
    assert "all is well" in run("check")
    assert "needs at least one of" in run("export", status=1)
    said = run("export", "--table", "groups.csv", "--folder", "people", "--gallery", "known.db")
    assert "12 rows" in said
    assert "6 templates of 1 people" in said
    with open(tmp_path / "groups.csv", newline="") as file:
        assert sum(row["name"] == "Ada" for row in csv.DictReader(file)) == 6
    assert len(list((tmp_path / "people" / "Ada").iterdir())) == 6
    write_key(tmp_path / "people.key")
    run("export", "--gallery", "secret.db", "--key-file", "people.key")
    with Gallery(tmp_path / "secret.db", create=False, key=tmp_path / "people.key") as gallery:
        assert gallery.list() == {"Ada": 6}
    assert "give its key by --key-file" in run("export", "--gallery", "secret.db", status=1)
    assert "there is no group 999" in run("name", 999, "Bob", status=1)


def test_an_album_that_is_missing_is_said(tmp_path):
    done = typed("album", "list", "none.album", cwd=tmp_path, code=1)
    assert "there is no album at none.album" in done.stderr
    assert not (tmp_path / "none.album").exists()
