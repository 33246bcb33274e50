import contextlib
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hypersphere.recognition import DamagedGalleryError, Gallery
from hypersphere.recognition.stores import sqlite_database, sqlite_store, sqlite_templates, template_file
from tests.recognition.contracts import GalleryContract


class TestSQLite(GalleryContract):
    @pytest.fixture
    def address(self, tmp_path):
        (tmp_path / "galleries").mkdir()
        return str(tmp_path / "galleries" / "people.db")

    @contextlib.contextmanager
    def half_done(self, gallery):
        with contextlib.suppress(ZeroDivisionError), gallery._store._write_transaction():
            sqlite_templates.make_owners(gallery._store._db, ["bob"])
            yield
            raise ZeroDivisionError

    def test_a_failure_inside_a_change_leaves_nothing_of_it(self, gallery, monkeypatch):
        def pack(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(template_file, "pack", pack)
        with pytest.raises(KeyboardInterrupt):
            gallery.enrol("ada", torch.rand(5, 2))
        monkeypatch.undo()
        assert gallery.list() == {}
        gallery.enrol("ada", torch.rand(5, 2))
        assert gallery.check() == []

    def test_features_of_any_size_are_kept(self, gallery):
        features = torch.randn(4, 7) * torch.tensor([1e-30, 1.0, 1e30, 1.0])[:, None]
        gallery.enrol("ada", features)
        assert torch.equal(gallery._store.features_of("ada"), features)
        assert all(m.best.score == pytest.approx(1, abs=1e-9) for m in gallery.identify(features, threshold=0.5))

    def test_files_are_their_owners_alone(self, gallery, address):
        before = os.umask(0)
        try:
            gallery.enrol("ada", torch.rand(2))
            folder = os.path.dirname(address)
            assert {stat.S_IMODE(os.stat(os.path.join(folder, f)).st_mode) for f in os.listdir(folder)} == {0o600}
        finally:
            os.umask(before)

    def test_an_index_is_refused(self, gallery):
        gallery.enrol("ada", torch.rand(2))
        for use in (gallery.build_index, lambda: gallery.identify(torch.rand(2), threshold=0.5, approximate=True)):
            with pytest.raises(ValueError, match="a gallery in a file is searched exactly"):
                use()

    def test_removed_features_are_overwritten(self, gallery, address):
        features = torch.randn(2, 50)
        gallery.enrol(["ada", "bob"], features)
        with open(f"{address}.features-0", "rb") as file:
            assert features[0].numpy().tobytes() in file.read()
        gallery.remove("ada")
        with open(f"{address}.features-0", "rb") as file:
            content = file.read()
        assert features[0].numpy().tobytes() not in content
        assert features[1].numpy().tobytes() in content

    def test_what_a_killed_process_removed_is_overwritten_by_the_next(self, gallery, address, monkeypatch):
        features = torch.randn(2, 50)
        gallery.enrol(["ada", "bob"], features)
        monkeypatch.setattr(type(gallery._store), "_clean", lambda self: None)
        gallery.remove("ada")
        monkeypatch.undo()
        gallery.enrol("cem", torch.randn(50))
        with open(f"{address}.features-0", "rb") as file:
            assert features[0].numpy().tobytes() not in file.read()
        assert gallery.check() == []

    def test_a_file_of_mostly_removed_templates_is_rewritten(self, gallery, address, monkeypatch):
        monkeypatch.setattr(sqlite_templates, "MIN_REMOVED_FOR_COMPACTION", 10)
        features = torch.randn(40, 6)
        gallery.enrol([f"p{i // 10}" for i in range(40)], features)
        with Gallery(address) as reader:
            assert reader.identify(features[35], threshold=0.99)[0].accepted
            gallery.remove("p1")
            assert os.path.exists(f"{address}.features-0")
            gallery.remove("p0")
            assert sorted(os.listdir(os.path.dirname(address)))[:2] == ["people.db", "people.db-shm"]
            assert not os.path.exists(f"{address}.features-0")
            assert os.path.getsize(f"{address}.features-1") == 32 + 20 * (16 + 24)
            assert reader.identify(features[35], threshold=0.99)[0].best.identity == "p3"
            assert not reader.identify(features[5], threshold=0.99)[0].accepted
        gallery.enrol("p5", torch.randn(3, 6))
        assert gallery.check() == []
        assert gallery.list() == {"p2": 10, "p3": 10, "p5": 3}

    def test_a_locked_gallery_is_an_os_error(self, gallery, address):
        gallery._store._db.execute("PRAGMA busy_timeout = 50")
        with Gallery(address) as other, other._store._write_transaction(), pytest.raises(OSError, match="locked"):
            gallery.enrol("ada", torch.rand(2))
        gallery.enrol("ada", torch.rand(2))
        assert gallery.list() == {"ada": 1}

    def test_a_disk_that_is_full_loses_nothing(self, gallery, monkeypatch):
        gallery.enrol("ada", torch.rand(2))

        def full(file, part):
            file.write(b"half")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(template_file, "_write", full)
        with pytest.raises(OSError, match="No space left"):
            gallery.enrol("bob", torch.rand(2))
        monkeypatch.undo()
        assert gallery.list() == {"ada": 1}
        gallery.enrol("bob", torch.rand(2))
        assert gallery.check() == []


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 8), st.integers(0, 1000))
def test_identify_is_that_of_loops(people, most, k, seed):
    generator = torch.Generator().manual_seed(seed)
    templates = {
        f"p{i}": torch.randn(int(torch.randint(1, most + 1, (), generator=generator)), 3, generator=generator)
        for i in range(people)
    }
    probes = torch.randn(4, 3, generator=generator)
    with Gallery(":memory:") as gallery:
        gallery.enrol([n for n, f in templates.items() for _ in f], torch.cat(list(templates.values())))
        found = gallery.identify(probes, k, threshold=0.5)
    for probe, answer in zip(probes, found, strict=True):
        matches = answer.candidates
        scores = {
            n: torch.cosine_similarity(probe[None].double(), f.double()).max().item() for n, f in templates.items()
        }
        expected = sorted(scores, key=lambda n: -scores[n])[:k]
        assert [m.identity for m in matches] == expected
        assert [m.score for m in matches] == pytest.approx([scores[n] for n in expected], abs=1e-6)
        assert [m.accepted for m in matches] == [scores[n] >= 0.5 for n in expected]


def test_nothing_is_left_of_a_gallery_in_memory():
    gallery = Gallery(":memory:")
    folder = gallery._store.path.parent
    gallery.enrol("ada", torch.rand(2))
    gallery.close()
    assert not folder.exists()
    assert not os.path.exists(":memory:")


@pytest.fixture
def closed(tmp_path):
    path = tmp_path / "people.db"
    with Gallery(path) as gallery:
        gallery.enrol([f"person {i % 10}" for i in range(60)], torch.randn(60, 20), [f"{i}.png" for i in range(60)])
        gallery.remove("person 3")
        same = torch.arange(200) % 2 == 0
        gallery.calibrate(far=0.01, pairs=(torch.rand(200) + same, same))
    return path


def answers(path):
    """Return everything that a gallery can be asked."""
    probes = torch.randn(4, 20, generator=torch.Generator().manual_seed(5))
    with Gallery(path, create=False) as gallery:
        return gallery.list(), gallery.calibrations, gallery.identify(probes, 3), gallery.verify("person 5", probes)


def test_other_files_are_refused_untouched(tmp_path):
    text, database = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("not a database, and long enough to be taken for one" * 20)
    with sqlite3.connect(database) as db:
        db.execute("CREATE TABLE things (x)")
    db.close()
    before = text.read_bytes(), database.read_bytes()
    with pytest.raises(ValueError, match=r"notes.txt cannot be opened as a gallery"):
        Gallery(text)
    with pytest.raises(ValueError, match=r"other.db is a database, but not a gallery"):
        Gallery(database)
    assert (text.read_bytes(), database.read_bytes()) == before
    with pytest.raises(ValueError, match="there is no gallery at"):
        Gallery(tmp_path / "missing.db", create=False)
    assert not (tmp_path / "missing.db").exists()
    with pytest.raises(ValueError, match="cannot be opened as a gallery"):
        Gallery(tmp_path / "no folder" / "people.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(ValueError, match="the file is empty"):
        Gallery(tmp_path / "empty.db", create=False)


def test_a_later_version_is_refused(tmp_path):
    path = tmp_path / "people.db"
    Gallery(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(ValueError, match="gallery of version 99; this release reads up to version 4"):
        Gallery(path)


def test_a_damaged_database_is_an_os_error(closed):
    content = bytearray(closed.read_bytes())
    content[5000:] = b"\xff" * (len(content) - 5000)
    closed.write_bytes(content)
    with pytest.raises((OSError, ValueError), match="gallery"), Gallery(closed) as gallery:
        gallery.list()


@pytest.mark.parametrize("damage", ["bit", "short", "gone"])
def test_damaged_features_are_never_searched(closed, damage):
    path = closed.with_name("people.db.features-0")
    content = bytearray(path.read_bytes())
    content[100] ^= 4
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content if damage == "bit" else content[:-1])
    message = {"bit": "do not match their checksums", "short": "shorter than the database says", "gone": "is missing"}
    with Gallery(closed) as gallery:
        with pytest.raises(DamagedGalleryError, match=message[damage]):
            gallery.identify(torch.rand(20), threshold=0.5)
        assert any("checksum" in p or "shorter" in p or "missing" in p for p in gallery.check())


def flip(closed, flips, seed=0):
    """Flip one bit at a time. Return the flips that changed an answer without an error, and the number of errors."""
    right, draw = answers(closed), random.Random(seed)
    paths = [closed, closed.with_name("people.db.features-0")]
    contents = {path: path.read_bytes() for path in paths}
    wrong, noticed = [], 0
    for _ in range(flips):
        path = draw.choice(paths)
        damaged = bytearray(contents[path])
        place, bit = draw.randrange(len(damaged)), draw.randrange(8)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            if answers(closed) != right:
                wrong.append((path.name, place, bit))
        except (OSError, ValueError):
            noticed += 1
        path.write_bytes(contents[path])
        for log in ("-wal", "-shm"):
            closed.with_name(closed.name + log).unlink(missing_ok=True)
    return wrong, noticed


def test_flipped_bits_never_change_an_answer(closed):
    wrong, noticed = flip(closed, 60)
    assert wrong == []
    assert noticed >= 10


@pytest.mark.slow
def test_many_flipped_bits_never_change_an_answer(closed):
    assert flip(closed, 1000, seed=1)[0] == []


def test_a_gallery_made_while_another_looks_at_it_is_one(tmp_path):
    """The gallery's mark and its tables are read from one snapshot, even if another process creates them meanwhile."""
    path = tmp_path / "people.db"
    path.touch()
    other = threading.Thread(target=lambda: Gallery(path).close())

    class Overtaken(sqlite3.Connection):
        def execute(self, statement, *values):
            if "sqlite_master" in statement and other.ident is None:
                other.start()
                other.join(1)
            return super().execute(statement, *values)

    db = sqlite3.connect(path, isolation_level=None, factory=Overtaken)
    sqlite_database._prepare(db, path, create=True, readonly=False)
    db.close()
    other.join()
    with Gallery(path) as gallery:
        assert gallery.check() == []


def test_a_gallery_on_read_only_media(closed, tmp_path):
    folder = tmp_path / "media"
    folder.mkdir()
    right = answers(closed)
    if subprocess.run(["mount", "--bind", "-o", "ro", tmp_path, folder], capture_output=True).returncode:
        pytest.skip("mounting a folder for reading only needs root")
    try:
        if os.access(folder, os.W_OK):
            pytest.skip("this system mounts nothing for reading only")
        path = folder / "people.db"
        assert answers(path) == right
        with Gallery(path) as gallery:
            assert gallery.check() == []
            gallery.backup(tmp_path / "copy.db")
            with pytest.raises(OSError, match="its file or folder cannot be written to"):
                gallery.enrol("eve", torch.rand(20))
        assert answers(tmp_path / "copy.db") == right
        assert sorted(p.name for p in tmp_path.glob("people.db*")) == ["people.db", "people.db.features-0"]
    finally:
        subprocess.run(["umount", folder], check=True)


def test_nothing_of_a_removed_person_stays_in_the_files_of_an_open_gallery(tmp_path):
    """The write-ahead log used to keep removed names and sources until the gallery was closed."""
    with Gallery(tmp_path / "people.db") as gallery:
        gallery.enrol("keeper", torch.rand(1, 16))
        gallery.enrol("Zacharias Unmistakable", torch.full((1, 16), 0.123456789), ["/photos/unmistakable.png"])
        gallery.remove("Zacharias Unmistakable")
        feature = torch.full((2,), 0.123456789).numpy().tobytes()
        for file in tmp_path.iterdir():
            content = file.read_bytes()
            assert b"nmistakable" not in content, file
            assert feature not in content, file
        assert gallery.list() == {"keeper": 1}


class FailingCheckpoint:
    """A connection whose checkpoint fails, as with a disk error."""

    def __init__(self, db):
        self.db = db

    def execute(self, statement, *values):
        if "wal_checkpoint" in statement:
            raise sqlite3.OperationalError("disk I/O error")
        return self.db.execute(statement, *values)

    def __getattr__(self, name):
        return getattr(self.db, name)


@pytest.mark.untyped  # the connection is a stand-in
def test_a_log_that_cannot_be_emptied_is_reported(tmp_path):
    with Gallery(tmp_path / "people.db") as gallery:
        gallery.enrol("keeper", torch.rand(1, 16))
        gallery.enrol("ann", torch.rand(1, 16))
        gallery._store._db = FailingCheckpoint(gallery._store._db)
        with pytest.warns(UserWarning, match="people.db still holds what was removed.*disk I/O error"):
            gallery.remove("ann")
        assert gallery.list() == {"keeper": 1}


@pytest.fixture
def filled(tmp_path):
    with Gallery(tmp_path / "people.db") as gallery:
        gallery.enrol([f"p{i // 4}" for i in range(40)], torch.randn(40, 6), [f"{i}.png" for i in range(40)])
        gallery.remove("p5")
        yield gallery


def test_a_backup_is_two_files_of_their_owner_alone(filled, tmp_path):
    filled.backup(tmp_path / "copy.db")
    assert sorted(p.name for p in tmp_path.glob("*copy*")) == ["copy.db", "copy.db.features-0"]
    assert {p.stat().st_mode & 0o777 for p in tmp_path.glob("copy*")} == {0o600}


def test_a_backup_goes_on_while_others_read(filled, tmp_path):
    with Gallery(tmp_path / "people.db") as reader:
        reader.identify(torch.randn(6), threshold=0.5)
        filled.backup(tmp_path / "copy.db")
        assert len(reader.list()) == 9


@pytest.mark.parametrize("failing", ["_copy_database", "template_file.append"])
def test_a_backup_to_a_full_disk_leaves_nothing(failing, tmp_path, monkeypatch):
    with Gallery(tmp_path / "people.db") as gallery:
        gallery.enrol("ada", torch.eye(3))

        def full(*_):
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(f"hypersphere.recognition.stores.sqlite_store.{failing}", full)
        with pytest.raises(OSError, match=r"full"):
            gallery.backup(tmp_path / "copy.db")
    assert not [path for path in tmp_path.iterdir() if "copy" in path.name]


KILLED_BACKUP = """
import os, sys
from hypersphere.recognition import Gallery
from hypersphere.recognition.stores import sqlite_store
sqlite_store._copy_database = lambda *_: os.kill(os.getpid(), 9)
Gallery(sys.argv[1]).backup(sys.argv[2])
"""


def test_a_killed_backup_leaves_nothing_that_looks_like_a_gallery(filled, tmp_path):
    target = tmp_path / "copies" / "copy.db"
    target.parent.mkdir()
    command = [sys.executable, "-c", KILLED_BACKUP, str(tmp_path / "people.db"), str(target)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert all(path.name.startswith(".") for path in target.parent.iterdir()), "only a hidden, unfinished folder"
    with pytest.raises(ValueError, match="there is no gallery at"):
        Gallery(target, create=False)
    filled.backup(target)
    assert sorted(path.name for path in target.parent.iterdir()) == ["copy.db", "copy.db.features-0"]
    with Gallery(target, create=False) as copy:
        assert copy.check() == []


def test_a_check_beside_another_writer_reports_no_damage(tmp_path, monkeypatch):
    """Another process overwrites a removed template after the check's snapshot and before its reading."""
    with Gallery(tmp_path / "people.db") as gallery, Gallery(tmp_path / "people.db") as other:
        gallery.enrol(["ada", "bob"], torch.eye(2))
        find, calls = sqlite_store.find_problems, []

        def interrupted(db, meta, path):
            if not calls:
                other.remove("bob")
            calls.append(1)
            return find(db, meta, path)

        monkeypatch.setattr(sqlite_store, "find_problems", interrupted)
        assert gallery.check() == []
        assert len(calls) == 2
