import numpy as np
import pytest

from hypersphere.recognition.stores.postgres_database import (
    connect,
    failing_clearly,
    feature_seal,
    shown,
    split_address,
)


def test_the_gallery_stands_behind_the_hash():
    assert split_address("postgresql://ada@host:5/faces") == ("postgresql://ada@host:5/faces", "hypersphere")
    assert split_address("postgresql://host/faces#staff_2")[1] == "staff_2"
    for name in ("Staff", "a b", "x;DROP TABLE y", "a" * 64, "1a"):
        with pytest.raises(ValueError, match="small letters, digits and _"):
            split_address(f"postgresql://host/faces#{name}")


def test_passwords_are_never_shown():
    assert shown("postgresql://ada:s@cret@host/faces#a") == "postgresql://ada@host/faces#a"
    assert "secret" not in shown("postgresql://host/faces?password=secret&sslmode=require")
    assert shown("postgresql://host/faces?sslmode=require") == "postgresql://host/faces?sslmode=require"


def test_seals_depend_on_every_bit():
    feature = np.arange(4, dtype=np.float32)
    other = feature.copy()
    other[3] = np.nextafter(other[3], 9, dtype=np.float32)
    assert len({feature_seal("a", feature), feature_seal("b", feature), feature_seal("a", other)}) == 3


def test_another_version_is_refused(server):
    address = f"{server}#of_another_version"
    db = connect(address, None, create=True, readonly=False)
    db.execute("UPDATE of_another_version.meta SET value = '99' WHERE key = 'version'")
    db.close()
    with pytest.raises(ValueError, match="is a gallery of version 99; this release reads version 1"):
        connect(address, None, create=True, readonly=False)


def test_errors_of_the_server_are_one_line(server):
    db = connect(f"{server}#of_errors", None, create=True, readonly=False)
    with pytest.raises(OSError, match=r"cannot be used: .*does not exist") as error, failing_clearly(server):
        db.execute("SELECT * FROM nothing_like_this")
    db.close()
    assert "\n" not in str(error.value)
