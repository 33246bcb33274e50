import pytest

from hypersphere.recognition.stores import Store, normalize_name, open_store
from hypersphere.recognition.stores.sqlite_store import SQLiteStore


def test_a_path_is_a_file_and_the_protocol_is_kept(tmp_path):
    store = open_store(tmp_path / "people.db", None, create=True, readonly=False)
    assert isinstance(store, SQLiteStore)
    assert isinstance(store, Store)
    store.close()
    with pytest.raises(ValueError, match="there is no gallery at"):
        open_store(tmp_path / "missing.db", None, create=True, readonly=True)


def test_an_address_is_a_server(server):
    store = open_store(f"{server}#of_test_store", None, create=True, readonly=False)
    assert type(store).__name__ == "PostgresStore"
    assert isinstance(store, Store)
    store.close()


@pytest.mark.parametrize("name", ["", "\t", "a\x00b", "a\u2028b", "\udc80"])
def test_names_that_would_break_lines_are_refused(name):
    with pytest.raises(ValueError, match="identity must be"):
        normalize_name(name)


def test_names_stay_otherwise():
    assert normalize_name(" Ada  L. ") == " Ada  L. "
    assert normalize_name("ﬁ") == "ﬁ"  # a ligature is a different letter, not another encoding of "fi"
