import numpy as np
import pytest

from hypersphere.recognition import Gallery
from hypersphere.recognition.stores.postgres_database import (
    connect,
    redact_address,
    row_checksum,
    split_address,
    template_checksum,
    translate_errors,
)


def test_the_gallery_stands_behind_the_hash():
    assert split_address("postgresql://ada@host:5/faces") == ("postgresql://ada@host:5/faces", "hypersphere")
    assert split_address("postgresql://host/faces#staff_2")[1] == "staff_2"
    for name in ("Staff", "a b", "x;DROP TABLE y", "a" * 64, "1a"):
        with pytest.raises(ValueError, match="lowercase letters, digits and _"):
            split_address(f"postgresql://host/faces#{name}")


SECRET = "hunter2x"
ADDRESSES = [
    f"postgresql://ada:{SECRET}@127.0.0.1:1/faces",
    f"postgresql://ada:{SECRET}%40x@127.0.0.1:1/faces",
    f"postgresql://ada:a@{SECRET}@127.0.0.1:1/faces",
    f"postgresql://ada:a:{SECRET}@127.0.0.1:1/faces",
    f"postgresql://ada:a/{SECRET}@127.0.0.1:1/faces",
    f"postgresql://ada:a#{SECRET}@127.0.0.1:1/faces",
    f"postgresql://ada:a?{SECRET}@127.0.0.1:1/faces",
    f"postgresql://127.0.0.1:1/faces?user=ada&password={SECRET}",
    f"postgresql://127.0.0.1:1/faces?PASSWORD={SECRET}",
    f"postgresql://127.0.0.1:1/faces?sslpassword={SECRET}",
    f"postgresql://127.0.0.1:1/faces?pass%77ord={SECRET}",
    f"postgresql://127.0.0.1:1/faces?options=-c%20x={SECRET}",
    f"postgres://ada:{SECRET}@[::1:1/faces",
    f"postgresql://ada:{SECRET}@127.0.0.1:{SECRET}/faces",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_passwords_are_never_shown(address):
    with pytest.raises((ValueError, OSError)) as caught:
        Gallery(address)
    error = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = None if error.__suppress_context__ else error.__cause__ or error.__context__


def test_an_address_is_named_by_its_place():
    assert redact_address("postgresql://ada:x%40y@host:5/faces?sslmode=require#a") == "postgresql://ada@host:5/faces#a"
    assert redact_address("postgresql://host/faces") == "postgresql://host/faces"
    with pytest.raises(ValueError, match="percent-encoded"):
        redact_address("postgresql://ada:s@cret@host/faces")


def test_seals_depend_on_every_bit():
    feature = np.arange(4, dtype=np.float32)
    other = feature.copy()
    other[3] = np.nextafter(other[3], 9, dtype=np.float32)
    found = [(1, "a", feature), (1, "b", feature), (1, "a", other), (2, "a", feature)]
    assert len({template_checksum(*row) for row in found}) == 4


def test_another_version_is_refused(server):
    address = f"{server}#of_another_version"
    db = connect(address, None, create=True, readonly=False)
    changed = ("99", row_checksum("version", "99"))
    db.execute("UPDATE of_another_version.meta SET value = %s, checksum = %s WHERE key = 'version'", changed)
    db.close()
    with pytest.raises(ValueError, match="is a gallery of version 99; this release reads version 3"):
        connect(address, None, create=True, readonly=False)


def test_errors_of_the_server_are_one_line(server):
    db = connect(f"{server}#of_errors", None, create=True, readonly=False)
    with pytest.raises(OSError, match=r"cannot be used: .*does not exist") as error, translate_errors(server):
        db.execute("SELECT * FROM nothing_like_this")
    db.close()
    assert "\n" not in str(error.value)
