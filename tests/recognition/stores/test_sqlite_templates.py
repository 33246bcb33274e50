import pytest
import torch

from hypersphere.recognition.stores import DamagedGalleryError, sqlite_templates
from hypersphere.recognition.stores.sqlite_store import SQLiteStore, read_names


@pytest.fixture
def store(tmp_path):
    store = SQLiteStore(tmp_path / "people.db", None)
    store.enrol(["ada", "ada", "bob"], torch.eye(3), ["1", "2", "1"])
    yield store
    store.close()


def make_plan(store, names, features, sources):
    with store._write_transaction() as meta:
        owners, fresh = sqlite_templates.make_owners(store._db, names)
        rows = features.numpy()
        return sqlite_templates.plan_writes(
            store._db, meta, store._file(meta), rows, [owners[n] for n in names], fresh, sources
        )


def test_a_plan_writes_what_is_new_and_replaces_what_changed(store):
    names, sources = ["ada", "ada", "ada", "cem", "cem"], ["1", "2", "", "1", "1"]
    made = make_plan(store, names, torch.eye(3)[[0, 0, 1, 1, 2]], sources)
    assert made.owners == [1, 1, 1, 3, 3]
    assert made.written == [1, 2, 4]  # ada's "1" is unchanged; cem's second "1" replaces the first
    assert made.replaced == [(1, "2", 2)]
    assert made.numbers == [1, 4, 5, 6, 6]


def test_owners_are_made_once(store):
    with store._write_transaction():
        owners, fresh = sqlite_templates.make_owners(store._db, ["dia", "ada", "dia"])
        assert owners == {"dia": 3, "ada": 1}
        assert fresh == {3}
        assert sqlite_templates.find_owner(store._db, "dia") == 3
        assert sqlite_templates.find_owner(store._db, "eve") is None


def test_a_compaction_waits_until_it_is_worth_it(store, tmp_path, monkeypatch):
    def compacted():
        with store._write_transaction() as meta:
            return sqlite_templates.compact(store._db, meta, store._file(meta), store._file(meta, 1))

    store.remove("ada")
    assert compacted() is None
    monkeypatch.setattr(sqlite_templates, "MIN_REMOVED_FOR_COMPACTION", 2)
    assert compacted() == 1
    assert (tmp_path / "people.db.features-1").stat().st_size == 32 + 16 + 12


def test_only_features_of_other_generations_are_deleted(tmp_path):
    names = ["a.db", "a.db.features-1", "a.db.features-2", "a.db.features-x", "b.db.features-1", "notes-1"]
    for name in names:
        (tmp_path / name).touch()
    sqlite_templates.remove_other_generations(tmp_path / "a.db.features-2")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(set(names) - {"a.db.features-1"})


def test_rows_that_do_not_fit_are_damage(store):
    with store._read_transaction() as meta:
        rows = store._db.execute("SELECT number, source, checksum FROM templates WHERE identity = 1").fetchall()
        path = store._file(meta)
        assert sqlite_templates.read_features(path, meta, 1, rows).shape == (2, 3)
        number, source, checksum = rows[0]
        for wrong in ((number, source, checksum + 1), (number, "x", checksum), (999, source, checksum)):
            with pytest.raises(DamagedGalleryError):
                sqlite_templates.read_features(path, meta, 1, [wrong])
        with pytest.raises(DamagedGalleryError):
            sqlite_templates.read_features(path, meta, 2, rows)
        assert read_names(store._db, [1, 2]) == {1: "ada", 2: "bob"}
        with pytest.raises(DamagedGalleryError, match="a name is missing"):
            read_names(store._db, [99])
