import contextlib
import sys
import uuid

import psycopg
import pytest
import torch

from hypersphere.recognition import DamagedGalleryError, Gallery
from hypersphere.recognition.stores import UncertainCommitError, postgres_store
from tests.recognition.contracts import GalleryContract


def terminate(gallery):
    """Close a gallery's connection on the server, as a restart or an idle timeout does."""
    with psycopg.connect(gallery._store._address.partition("#")[0], autocommit=True) as other:
        pid = gallery._store._db.info.backend_pid
        assert other.execute("SELECT pg_terminate_backend(%s)", (pid,)).fetchone() == (True,)
        while other.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() != (0,):
            pass


class TestPostgres(GalleryContract):
    def test_a_lost_connection_is_made_again(self, gallery):
        gallery.enrol("ada", torch.ones(3))
        terminate(gallery)
        gallery._store._used -= 10  # as if idle: the connection is tested before use, so no call fails
        assert gallery.list() == {"ada": 1}
        terminate(gallery)
        with pytest.raises(OSError, match="cannot be used"):
            gallery.list()
        gallery.enrol("bob", torch.ones(3))
        assert gallery.list() == {"ada": 1, "bob": 1}
        gallery.close()
        with pytest.raises(OSError, match="is closed"):
            gallery.list()

    def test_a_commit_that_is_cut_off_is_uncertain_and_can_be_repeated(self, gallery):
        gallery.enrol("ada", torch.ones(3), ["1.png"])

        def cut_off():
            with gallery._store._transaction(writing=True):
                gallery._store._make_owners(["bob"])
                terminate(gallery)

        with pytest.raises(UncertainCommitError, match="may have been made or not"):
            cut_off()
        gallery.enrol("ada", torch.ones(3), ["1.png"])
        assert gallery.list() == {"ada": 1}

    def test_attempts_to_connect_again_come_at_growing_intervals(self, gallery, monkeypatch):
        attempts = []

        def refuse(*_, **__):
            attempts.append(1)
            raise OSError("refused")

        gallery.enrol("ada", torch.ones(3))
        monkeypatch.setattr(postgres_store, "connect", refuse)
        gallery._store._db.close()
        for _ in range(20):
            with pytest.raises(OSError, match=r"refused|the next attempt is made in"):
                gallery.list()
        assert len(attempts) == 1
        assert gallery._store._pause == 2 * postgres_store.FIRST_PAUSE
        gallery._store._next_attempt = 0.0
        monkeypatch.undo()
        assert gallery.list() == {"ada": 1}

    @pytest.fixture
    def address(self, server):
        return f"{server}#g{uuid.uuid4().hex}"

    @contextlib.contextmanager
    def half_done(self, gallery):
        with contextlib.suppress(ZeroDivisionError), gallery._store._transaction():
            gallery._store._make_owners(["bob"])
            yield
            raise ZeroDivisionError

    def test_a_failure_inside_a_change_leaves_nothing_of_it(self, gallery, monkeypatch):
        def seal(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(postgres_store, "template_checksum", seal)
        with pytest.raises(KeyboardInterrupt):
            gallery.enrol("ada", torch.rand(5, 2))
        monkeypatch.undo()
        assert gallery.list() == {}
        gallery.enrol("ada", torch.rand(5, 2))
        assert gallery.check() == []

    def test_lengths_that_the_server_cannot_square_are_refused(self, gallery):
        for size in (1e-20, 1e20):
            with pytest.raises(ValueError, match="lengths between 1e-15 and 1e15"):
                gallery.enrol("ada", size * torch.ones(3))
        assert gallery.list() == {}

    def test_an_index_reports_its_recall_and_is_used_only_when_asked(self, gallery):
        centres = torch.randn(30, 16)
        features = (centres[:, None] + 0.3 * torch.randn(30, 10, 16)).flatten(0, 1)
        gallery.enrol([f"p{i // 10}" for i in range(300)], features)
        with pytest.raises(ValueError, match="has no approximate index"):
            gallery.identify(features[:1], threshold=0.5, approximate=True)
        exact = gallery.identify(features[::20], 3, threshold=0.5)
        recall = gallery.build_index(k=5, probes=40)
        assert (recall.k, recall.probes) == (5, 40)
        assert 0.9 < recall.recall <= 1
        assert gallery.identify(features[::20], 3, threshold=0.5) == exact
        near = gallery.identify(features[::20], 1, threshold=0.5, approximate=True)
        assert sum(a.best == b.best for a, b in zip(near, exact, strict=True)) >= 14
        gallery.enrol("later", 5 * torch.ones(16))
        assert gallery.identify(torch.ones(16), threshold=0.5, approximate=True)[0].best.identity == "later"
        plans = []
        with gallery._store._transaction():
            for way in ("scan", "index"):
                gallery._store._set_search_method(way, 3)
                query = f"EXPLAIN SELECT id FROM {gallery._store._templates} ORDER BY feature <=> %s LIMIT 3"
                plans.append(str(gallery._store._db.execute(query, (torch.ones(16).numpy(),)).fetchall()))
        assert ["nearest" in plan for plan in plans] == [False, True]

    def test_a_changed_row_is_found(self, gallery, tmp_path):
        gallery.enrol(["ada", "bob"], torch.rand(2, 3), ["a.png", ""])
        with gallery._store._transaction():
            gallery._store._db.execute(f"UPDATE {gallery._store._templates} SET feature = '[1,2,3]' WHERE source <> ''")
        assert gallery.check() == ["template 1 of ada, a.png, does not match its checksum"]
        for use in (
            lambda: gallery.identify(torch.ones(3), 2, threshold=0.5),
            lambda: gallery.identify(torch.ones(20, 3), 2, threshold=0.5),
            lambda: gallery.verify("ada", torch.ones(3), threshold=0.5),
            lambda: gallery.backup(tmp_path / "copy.db"),
        ):
            with pytest.raises(DamagedGalleryError, match="does not match its checksum"):
                use()

    def test_swapped_names_and_owners_are_found(self, gallery):
        gallery.enrol(["ada", "bob"], torch.eye(2))
        store = gallery._store
        with store._transaction():
            for old, new in (("ada", "x"), ("bob", "ada"), ("x", "bob")):
                store._db.execute(f"UPDATE {store._identities} SET name = %s WHERE name = %s", (new, old))
        assert len(gallery.check()) == 2
        for use in (gallery.list, lambda: gallery.identify(torch.ones(2), threshold=0.5)):
            with pytest.raises(DamagedGalleryError, match="checksum"):
                use()

    def test_a_template_of_another_identity_is_found(self, gallery):
        gallery.enrol(["ada", "bob"], torch.eye(2))
        store = gallery._store
        with store._transaction():
            low = store._fetch_one(f"SELECT min(id) FROM {store._identities}")[0]
            store._db.execute(f"UPDATE {store._templates} SET identity = %s", (low,))
        assert len(gallery.check()) == 1
        with pytest.raises(DamagedGalleryError, match="checksum"):
            gallery.verify("ada", torch.ones(2), threshold=0.5)

    def test_a_changed_setting_is_found(self, gallery):
        gallery.enrol("ada", torch.ones(2))
        with gallery._store._transaction():
            gallery._store._db.execute(f"UPDATE {gallery._store._meta} SET value = '3' WHERE key = 'dim'")
        assert gallery.check() == ["the gallery is damaged: its setting 'dim' does not match its checksum"]
        with pytest.raises(DamagedGalleryError, match="'dim'"):
            gallery.identify(torch.ones(2), threshold=0.5)

    def test_a_server_that_is_not_there_is_one_line_without_the_password(self):
        with pytest.raises(OSError, match="cannot be used") as error:
            Gallery("postgresql://ada:secret@127.0.0.1:1/faces")
        assert "secret" not in str(error.value)
        assert "\n" not in str(error.value)


def test_without_psycopg_the_install_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"\[postgres\]"):
        Gallery("postgresql://127.0.0.1/faces")
