import contextlib
import sqlite3

import pytest

from hypersphere.recognition.album_database import connect, run_step, undo_last_step


@pytest.fixture
def db(tmp_path):
    db = connect(tmp_path / "party.album", create=True)
    yield db
    db.close()


def test_a_step_is_undone_once(db):
    with run_step(db, "make a group"):
        db.execute("INSERT INTO groups (name) VALUES ('ada')")
    with run_step(db, "rename it"):
        db.execute("UPDATE groups SET name = 'bob'")
    assert undo_last_step(db) == "rename it"
    assert db.execute("SELECT name FROM groups").fetchall() == [("ada",)]
    assert undo_last_step(db) == "make a group"
    assert db.execute("SELECT name FROM groups").fetchall() == []
    assert undo_last_step(db) is None


def test_a_failed_step_leaves_nothing(db):
    with contextlib.suppress(ZeroDivisionError), run_step(db, "make a group"):
        db.execute("INSERT INTO groups (name) VALUES ('ada')")
        raise ZeroDivisionError
    assert db.execute("SELECT COUNT(*) FROM groups").fetchone() == (0,)
    assert db.execute("SELECT COUNT(*) FROM history").fetchone() == (0,)


def test_other_databases_are_refused(tmp_path):
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE things (x)")
    other.close()
    with pytest.raises(ValueError, match="is a database, but not an album"):
        connect(tmp_path / "other.db", create=True)
    with pytest.raises(ValueError, match="there is no album at"):
        connect(tmp_path / "missing.album", create=False)
