import numpy as np
import pytest
import torch

from hypersphere.recognition.stores import DamagedGalleryError, template_file
from hypersphere.recognition.stores.sqlite_store import (
    SQLiteStore,
    names_of,
    nearest_identities,
    read_features,
    take_snapshot,
)


@pytest.fixture
def store(tmp_path):
    store = SQLiteStore(tmp_path / "people.db", None)
    store.enrol([f"p{i // 4}" for i in range(40)], torch.randn(40, 6), [""] * 40)
    yield store
    store.close()


def look(store, before=None):
    with store._read_transaction() as meta:
        return take_snapshot(store._db, meta, store._file(meta), before)


def test_features_stay_in_the_file(store):
    at = look(store)
    assert isinstance(at.records, np.memmap)
    assert np.shares_memory(at.features.numpy(), at.records)
    torch.testing.assert_close(at.lengths, at.features.norm(dim=1))
    assert look(store, at) is at


def test_only_new_records_are_read_again(store, monkeypatch):
    at, seen = look(store), []
    store.enrol(["new"], torch.randn(1, 6), [""])
    damaged = template_file.find_damaged
    monkeypatch.setattr(template_file, "find_damaged", lambda records: seen.append(len(records)) or damaged(records))
    later = look(store, at)
    assert seen == [1]
    assert len(later.features) == 41
    torch.testing.assert_close(later.lengths, later.features.norm(dim=1))


def test_removed_records_do_not_count(store):
    at = look(store)
    store.remove("p2")
    later = look(store, at)
    assert later.counts.tolist() == [not 8 <= i < 12 for i in range(40)]
    store.enrol(["new"], torch.randn(1, 6), [""])
    last = look(store, later)
    assert last.counts.tolist() == [not 8 <= i < 12 for i in range(41)]
    owners = {owner for row in nearest_identities(last, torch.randn(3, 6), 50) for owner, _ in row}
    assert owners == {1, 2, *range(4, 12)}


def test_one_identity_with_most_templates_hides_nobody():
    with_many = SQLiteStore(":memory:", None)
    rows = torch.cat([torch.tensor([1.0, 0.0]) + 0.01 * torch.randn(500, 2), torch.tensor([[0.0, 1.0], [-1.0, 0.0]])])
    with_many.enrol(["many"] * 500 + ["second", "third"], rows, [""] * 502)
    found = with_many.nearest(torch.tensor([[1.0, 0.0]]), 3)
    with_many.close()
    assert [name for name, _ in found[0]] == ["many", "second", "third"]


def test_rows_that_do_not_fit_are_damage(store):
    with store._read_transaction() as meta:
        rows = store._db.execute("SELECT number, source, checksum FROM templates WHERE identity = 1").fetchall()
        path = store._file(meta)
        assert read_features(path, meta, 1, rows).shape == (4, 6)
        number, source, checksum = rows[0]
        for wrong in ((number, source, checksum + 1), (number, "x", checksum), (999, source, checksum)):
            with pytest.raises(DamagedGalleryError):
                read_features(path, meta, 1, [wrong])
        with pytest.raises(DamagedGalleryError):
            read_features(path, meta, 2, rows)
        assert names_of(store._db, [1, 2]) == {1: "p0", 2: "p1"}
        with pytest.raises(DamagedGalleryError, match="a name is missing"):
            names_of(store._db, [99])
