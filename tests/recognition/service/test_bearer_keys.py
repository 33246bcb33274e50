import hmac

import pytest

from hypersphere.recognition.service import BearerKeys, bearer_keys

FIRST, SECOND = "first-key-of-sixteen", "second-key-of-sixteen"


def test_keys_open_and_others_do_not():
    keys = BearerKeys([FIRST, SECOND])
    assert keys
    assert keys.owner(f"Bearer {FIRST}") == keys.owner(f"bearer {FIRST}") != keys.owner(f"Bearer {SECOND}")
    for wrong in (
        None,
        "",
        "Bearer",
        "Bearer ",
        FIRST,
        f"Basic {FIRST}",
        f"Bearer {FIRST}x",
        "Bearer \udcff",
        "Bearer é",
    ):
        assert keys.owner(wrong) is None
    assert FIRST not in repr(vars(keys))
    assert FIRST not in str(keys.owner(f"Bearer {FIRST}"))


def test_every_key_is_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(
        bearer_keys.hmac, "compare_digest", lambda a, b, real=hmac.compare_digest: compared.append(a) or real(a, b)
    )
    BearerKeys([FIRST, SECOND]).owner(f"Bearer {FIRST}")
    assert len(compared) == 2
    assert {len(digest) for digest in compared} == {32}


def test_from_the_environment(monkeypatch):
    monkeypatch.setenv("HYPERSPHERE_KEYS", f"{FIRST},  {SECOND}")
    assert BearerKeys.read().owner(f"Bearer {SECOND}")
    monkeypatch.delenv("HYPERSPHERE_KEYS")
    assert not BearerKeys.read()


def test_from_a_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"# the door\n{FIRST}\n\n  {SECOND}\n")
    assert BearerKeys.read(path).owner(f"Bearer {SECOND}")
    path.write_text("# none\n")
    with pytest.raises(ValueError, match="must contain at least one key"):
        BearerKeys.read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="must be a text file"):
        BearerKeys.read(path)
    with pytest.raises(FileNotFoundError):
        BearerKeys.read(tmp_path / "absent")


@pytest.mark.parametrize("key", ["short", "with spaces in the middle", "ümlaut-of-sixteen-letters"])
def test_refuses_without_telling_the_key(key):
    with pytest.raises(ValueError, match="key 1 must have at least 16 characters") as caught:
        BearerKeys([key])
    assert key not in str(caught.value)
