import contextlib
import json
import os
import stat

import pytest
import torch

from hypersphere.recognition import DamagedGalleryError, Gallery
from hypersphere.recognition.stores import protection as p
from hypersphere.recognition.stores import sqlite_templates
from tests.recognition.contracts import GalleryContract

KEY = bytes(range(32))


class TestEncryptedSQLite(GalleryContract):
    """The whole gallery contract, with a key from the environment."""

    @pytest.fixture(autouse=True)
    def key(self, monkeypatch):
        monkeypatch.setenv(p.KEY_VARIABLE, KEY.hex())

    @pytest.fixture
    def address(self, tmp_path):
        return str(tmp_path / "people.db")

    @contextlib.contextmanager
    def half_done(self, gallery):
        inner = gallery._store._inner
        with contextlib.suppress(ZeroDivisionError), inner._write_transaction():
            sqlite_templates.make_owners(inner._db, [gallery._store._encrypt_name("bob")])
            yield
            raise ZeroDivisionError

    # The child processes of these tests have no key. Killed writers behave the same without encryption.
    test_readers_go_on_while_one_writes = None
    test_concurrent_writers_lose_nothing = None
    test_kills_lose_nothing_acknowledged = None
    test_many_kills_lose_nothing_acknowledged = None

    def test_the_same_file_is_not_doubled(self, gallery):
        first = torch.randn(3, 4)
        numbers = gallery.enrol("ada", first, ["1.png", "2.png", "3.png"])
        assert list(gallery.enrol("ada", first, ["1.png", "2.png", "3.png"])) == list(numbers)
        gallery.enrol("ada", torch.randn(2, 4), ["1.png", "2.png"])
        assert gallery.list() == {"ada": 3}

    def same(self, stored, given):
        return torch.allclose(stored, given, rtol=0, atol=1e-6 * given.norm(dim=1).max())

    def test_features_are_kept_bit_for_bit(self, gallery):
        features = torch.randn(4, 7)
        gallery.enrol("ada", features)
        assert self.same(gallery._store.features_of("ada"), features)


def fill(path, key):
    torch.manual_seed(3)
    features = torch.randn(40, 16)
    names = [f"Person Nr {i // 2:03d}" for i in range(40)]
    with Gallery(path, key=key) as gallery:
        gallery.enrol(names, features, [f"/holiday/{i}.png" for i in range(40)])
        gallery.reject("Person Nr 003", features[:1] + 0.1, ["/holiday/lookalike.png"])
    return names, features


def test_nothing_readable_is_in_any_file(tmp_path):
    _, features = fill(tmp_path / "a.db", KEY)
    with Gallery(tmp_path / "a.db", key=KEY) as gallery:
        gallery.backup(tmp_path / "copy.db")
        stored = gallery._store._inner.templates().features
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert b"Person" not in content
        assert b"holiday" not in content
        assert not any(row.numpy().tobytes() in content for row in features)
        assert not any(row.numpy().tobytes() in content for row in stored), "rotated features are encrypted too"
        assert KEY not in content
        assert KEY.hex().encode() not in content


def test_answers_are_those_of_a_gallery_without_a_key(tmp_path):
    names, features = fill(tmp_path / "a.db", KEY)
    fill(tmp_path / "b.db", None)
    probes = features + 0.2 * torch.randn(40, 16)
    with Gallery(tmp_path / "a.db", key=KEY) as first, Gallery(tmp_path / "b.db") as second:
        assert first.list() == second.list() == dict.fromkeys(dict.fromkeys(names), 2)
        assert first.list("Person Nr 010", 2) == {"Person Nr 011": 2, "Person Nr 012": 2}
        ours, plain = (g.identify(probes, k=5, threshold=0.5) for g in (first, second))
        for a, b in zip(ours, plain, strict=True):
            assert [m.identity for m in a.candidates] == [m.identity for m in b.candidates]
            assert [m.score for m in a.candidates] == pytest.approx([m.score for m in b.candidates], abs=1e-6)
        assert first.templates().sources == second.templates().sources
        assert [e.source for e in first.counterexamples] == ["/holiday/lookalike.png"]
        assert first.check() == []


def test_two_galleries_with_one_key_cannot_be_compared(tmp_path):
    for name in "ab":
        fill(tmp_path / f"{name}.db", KEY)
    rows = []
    for name in "ab":
        with Gallery(tmp_path / f"{name}.db", key=KEY) as gallery:
            rows.append(gallery._store._inner.templates().features)
    assert torch.cosine_similarity(*rows).abs().mean() < 0.4
    torch.testing.assert_close(
        torch.cosine_similarity(rows[0][:1], rows[0]), torch.cosine_similarity(rows[1][:1], rows[1]), rtol=0, atol=1e-5
    )


def test_a_missing_another_or_a_needless_key(tmp_path):
    fill(tmp_path / "a.db", KEY)
    fill(tmp_path / "b.db", None)
    with pytest.raises(ValueError, match="is encrypted: give its key by --key-file or the environment variable"):
        Gallery(tmp_path / "a.db")
    with pytest.raises(ValueError, match="the key does not fit the gallery"):
        Gallery(tmp_path / "a.db", key=bytes(32))
    with pytest.raises(ValueError, match="is not encrypted, but a key was given"):
        Gallery(tmp_path / "b.db", key=KEY)
    with pytest.raises(ValueError, match="must have 32 bytes, got 3"):
        Gallery(tmp_path / "c.db", key=b"abc")


def test_a_swapped_ciphertext_is_found(tmp_path):
    fill(tmp_path / "a.db", KEY)
    with Gallery(tmp_path / "a.db", key=KEY) as gallery:
        inner = gallery._store._inner
        first, second = (inner._db.execute("SELECT name FROM identities").fetchall()[i][0] for i in (0, 1))
        with pytest.raises(DamagedGalleryError, match="a source does not fit its authentication tag"):
            gallery._store._protection.decrypt_text("source", first)
        sealed = gallery._store._protection.encrypt(b"feature", b"1")
        with pytest.raises(DamagedGalleryError, match="a feature does not fit its authentication tag"):
            gallery._store._protection.decrypt(sealed, b"2")
        assert first != second


def test_key_files(tmp_path, monkeypatch):
    path = tmp_path / "people.key"
    p.write_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = p.read_key(path)
    assert len(key) == 32
    with pytest.raises(ValueError, match="a key is never replaced"):
        p.write_key(path)
    monkeypatch.setenv(p.KEY_VARIABLE, key.hex())
    assert p.read_key(None) == key
    monkeypatch.setenv(p.KEY_VARIABLE, "secret")
    with pytest.raises(ValueError, match="must contain 64 hexadecimal digits") as error:
        p.read_key(None)
    assert "secret" not in str(error.value)
    os.chmod(path, 0o644)
    with pytest.raises(ValueError, match="can be read by others"):
        p.read_key(path)
    with pytest.raises(ValueError, match="there is no key file"):
        p.read_key(tmp_path / "missing")


def test_the_rotation_is_orthogonal_and_fixed():
    matrix = p.Protection(KEY, b"salt").rotation(24)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(24).double(), rtol=0, atol=1e-12)
    # Stored galleries depend on these numbers, so every version must compute the same.
    assert matrix[0, :3].tolist() == pytest.approx(
        [0.3009678063075707, -0.469007926399715, 0.3668663796874707], abs=1e-12
    )
    setting = json.loads(p.make_protection(KEY))
    assert p.open_protection(json.dumps(setting), KEY, True, "x").check_value == setting["check"]


def test_a_server_gets_only_ciphertexts_and_rotated_features(server):
    address = f"{server}#encrypted"
    with Gallery(address, key=KEY) as gallery:
        gallery.enrol(["ada", "bob"], torch.eye(4)[:2], ["1.png", "2.png"])
        assert gallery.identify(torch.eye(4)[1], threshold=0.5)[0].name == "bob"
        assert gallery.list() == {"ada": 1, "bob": 1}
        inner = gallery._store._inner
        assert "ada" not in inner.counts()
        assert not torch.allclose(inner.templates().features, torch.eye(4)[:2], atol=0.1)
        assert gallery.check() == []
