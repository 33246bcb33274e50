import os
import sqlite3

import pytest

from hypersphere.recognition.stores import DamagedGalleryError
from hypersphere.recognition.stores.sqlite_database import (
    connect,
    is_writable,
    read_meta,
    row_checksum,
    transaction,
    write_meta,
)


@pytest.fixture
def db(tmp_path):
    db = connect(tmp_path / "a?b#c.db", create=True, readonly=False)
    yield db
    db.close()


def test_a_new_database_is_private_durable_and_empty(db, tmp_path):
    assert (tmp_path / "a?b#c.db").stat().st_mode & 0o777 == 0o600
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    found = read_meta(db)
    assert len(found.pop("gallery")) == 32
    assert found == {
        "revision": "0",
        "generation": "0",
        "rows": "0",
        "next": "1",
        "people": "0",
        "counterexamples": "0",
    }


def test_settings_are_compared_with_their_checksums(db):
    write_meta(db, "threshold", 0.5)
    write_meta(db, "none", None)
    assert read_meta(db)["threshold"] == "0.5"
    assert read_meta(db)["none"] is None
    db.execute("UPDATE meta SET value = '0.1' WHERE key = 'threshold'")
    with pytest.raises(DamagedGalleryError, match="'threshold' does not match its checksum"):
        read_meta(db)
    db.execute("DELETE FROM meta WHERE key IN ('threshold', 'rows')")
    with pytest.raises(DamagedGalleryError, match="'rows'"):
        read_meta(db)


def test_a_transaction_is_all_or_nothing(db):
    def interrupted():
        with transaction(db, "BEGIN"):
            write_meta(db, "a", 1)
            raise KeyboardInterrupt

    def wrong():
        with transaction(db, "BEGIN"):
            write_meta(db, "a", 1)
            db.execute("SELECT * FROM missing")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(OSError, match="no such table"):
        wrong()
    assert "a" not in read_meta(db)
    assert not db.in_transaction


def test_seals_tell_rows_apart():
    assert (
        len(
            {
                row_checksum(1, "a"),
                row_checksum(1, "b"),
                row_checksum(11, ""),
                row_checksum("1", "", "a"),
                row_checksum(2, "a"),
            }
        )
        == 5
    )


def test_readers_cannot_write(db, tmp_path):
    reader = connect(tmp_path / "a?b#c.db", create=False, readonly=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        write_meta(reader, "a", 1)
    reader.close()
    assert is_writable(tmp_path / "a?b#c.db")


def test_an_earlier_version_is_refused(tmp_path):
    connect(tmp_path / "old.db", create=True, readonly=False).close()
    db = sqlite3.connect(tmp_path / "old.db")
    db.execute("PRAGMA user_version = 1")
    db.close()
    with pytest.raises(ValueError, match="version 1; this release reads version 4: enroll again"):
        connect(tmp_path / "old.db", create=False, readonly=False)
    assert os.listdir(tmp_path) == ["old.db"]


def test_a_gallery_that_a_full_disk_did_not_let_be_made_leaves_no_file(tmp_path, monkeypatch):
    from hypersphere.recognition.stores import sqlite_database

    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_database, "write_meta", full)
        with pytest.raises(ValueError, match="disk is full"):
            connect(tmp_path / "people.db", create=True, readonly=False)
    assert not (tmp_path / "people.db").exists()
    connect(tmp_path / "people.db", create=True, readonly=False).close()
    assert (tmp_path / "people.db").exists()
