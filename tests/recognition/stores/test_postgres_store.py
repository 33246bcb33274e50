import contextlib
import sys
import uuid

import pytest
import torch

from hypersphere.recognition import Gallery
from hypersphere.recognition.stores import postgres_store
from tests.recognition.contracts import GalleryContract


class TestPostgres(GalleryContract):
    @pytest.fixture
    def address(self, server):
        return f"{server}#g{uuid.uuid4().hex}"

    @contextlib.contextmanager
    def half_done(self, gallery):
        with contextlib.suppress(ZeroDivisionError), gallery._store._transaction():
            gallery._store._owners(["bob"])
            yield
            raise ZeroDivisionError

    def test_a_failure_inside_a_change_leaves_nothing_of_it(self, gallery, monkeypatch):
        def seal(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(postgres_store, "feature_seal", seal)
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
        assert sum(a[0] == b[0] for a, b in zip(near, exact, strict=True)) >= 14
        gallery.enrol("later", 5 * torch.ones(16))
        assert gallery.identify(torch.ones(16), threshold=0.5, approximate=True)[0][0].identity == "later"
        plans = []
        with gallery._store._transaction():
            for way in ("scan", "index"):
                gallery._store._search_by(way, 3)
                query = f"EXPLAIN SELECT id FROM {gallery._store._templates} ORDER BY feature <=> %s LIMIT 3"
                plans.append(str(gallery._store._db.execute(query, (torch.ones(16).numpy(),)).fetchall()))
        assert ["nearest" in plan for plan in plans] == [False, True]

    def test_a_changed_row_is_found(self, gallery):
        gallery.enrol(["ada", "bob"], torch.rand(2, 3), ["a.png", ""])
        with gallery._store._transaction():
            gallery._store._db.execute(f"UPDATE {gallery._store._templates} SET feature = '[1,2,3]' WHERE source <> ''")
        assert gallery.check() == ["template 1 of ada, a.png, does not fit its checksum"]

    def test_a_server_that_is_not_there_is_one_line_without_the_password(self):
        with pytest.raises(OSError, match="cannot be used") as error:
            Gallery("postgresql://ada:secret@127.0.0.1:1/faces")
        assert "secret" not in str(error.value)
        assert "\n" not in str(error.value)


def test_without_psycopg_the_install_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"\[postgres\]"):
        Gallery("postgresql://127.0.0.1/faces")
