import numpy as np
import pytest
import torch

from hypersphere.recognition.stores import template_file
from hypersphere.recognition.stores.sqlite_snapshot import find_nearest_identities, take_snapshot
from hypersphere.recognition.stores.sqlite_store import SQLiteStore


@pytest.fixture
def store(tmp_path):
    store = SQLiteStore(tmp_path / "people.db", None)
    store.enrol([f"p{i // 4}" for i in range(40)], torch.randn(40, 6), [""] * 40)
    yield store
    store.close()


def take(store, previous=None):
    with store._read_transaction() as meta:
        return take_snapshot(store._db, meta, store._file(meta), previous)


def test_features_stay_in_the_file(store):
    snapshot = take(store)
    assert isinstance(snapshot.records, np.memmap)
    assert np.shares_memory(snapshot.features.numpy(), snapshot.records)
    torch.testing.assert_close(snapshot.lengths, snapshot.features.norm(dim=1))
    assert take(store, snapshot) is snapshot


def test_only_new_records_are_read_again(store, monkeypatch):
    snapshot, seen = take(store), []
    store.enrol(["new"], torch.randn(1, 6), [""])
    damaged = template_file.find_damaged
    monkeypatch.setattr(template_file, "find_damaged", lambda records: seen.append(len(records)) or damaged(records))
    later = take(store, snapshot)
    assert seen == [1]
    assert len(later.features) == 41
    torch.testing.assert_close(later.lengths, later.features.norm(dim=1))


def test_removed_records_are_invalid(store):
    snapshot = take(store)
    store.remove("p2")
    later = take(store, snapshot)
    assert later.valid.tolist() == [not 8 <= i < 12 for i in range(40)]
    store.enrol(["new"], torch.randn(1, 6), [""])
    last = take(store, later)
    assert last.valid.tolist() == [not 8 <= i < 12 for i in range(41)]
    owners = {owner for row in find_nearest_identities(last, torch.randn(3, 6), 50) for owner, _ in row}
    assert owners == {1, 2, *range(4, 12)}


def test_one_identity_with_most_templates_hides_nobody():
    with_many = SQLiteStore(":memory:", None)
    rows = torch.cat([torch.tensor([1.0, 0.0]) + 0.01 * torch.randn(500, 2), torch.tensor([[0.0, 1.0], [-1.0, 0.0]])])
    with_many.enrol(["many"] * 500 + ["second", "third"], rows, [""] * 502)
    found = with_many.nearest(torch.tensor([[1.0, 0.0]]), 3)
    with_many.close()
    assert [name for name, _ in found[0]] == ["many", "second", "third"]
