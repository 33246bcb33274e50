import torch

from hypersphere.recognition.stores import Store, open_store


def test_the_inner_store_sees_neither_names_nor_features(tmp_path):
    store = open_store(tmp_path / "people.db", None, create=True, readonly=False, key=bytes(32))
    assert isinstance(store, Store)
    store.enrol(["ada"], torch.eye(3)[:1], ["1.png"])
    inner = store._inner.templates()
    assert "ada" not in inner.identities
    assert "1.png" not in inner.sources
    assert not torch.allclose(inner.features, torch.eye(3)[:1], atol=1e-3)
    found = store.templates()
    assert (found.identities, found.sources) == (["ada"], ["1.png"])
    torch.testing.assert_close(found.features, torch.eye(3)[:1], rtol=0, atol=1e-6)
    assert store.remove("ada") == 1
    assert store.remove("ada") is None
    store.close()
