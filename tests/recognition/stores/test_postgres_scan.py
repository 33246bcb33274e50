"""Exact search in PostgreSQL, by scans on the server and by fetched templates, compared with float64 loops."""

import uuid

import numpy as np
import pytest
import torch

from hypersphere.recognition import Gallery
from hypersphere.recognition.stores import postgres_scan
from hypersphere.recognition.stores.postgres_scan import Block, Found, find_best_templates, select_for_scoring


@pytest.fixture
def gallery(server):
    with Gallery(f"{server}#g{uuid.uuid4().hex}") as made:
        yield made


@pytest.fixture(params=["by the server", "here"])
def way(request, monkeypatch):
    monkeypatch.setattr(postgres_scan, "MIN_PROBES_TO_FETCH_ALL", 1 if request.param == "here" else 1000)
    monkeypatch.setattr(postgres_scan, "CHUNK", 7)  # so that blocks end in the middle of a fetch
    monkeypatch.setattr(postgres_scan, "INITIAL_DEPTH", 4)  # so that the search has to go deeper
    return request.param


def by_loops(probe, features, names, k):
    """Return the k best identities and their cosines. Of cosines equal to 12 digits, the first enrolled wins."""
    lengths = (features.double().norm(dim=1) * probe.double().norm()).clamp(min=1e-300)
    cosines = features.double() @ probe.double() / lengths
    best = {}
    for score, name in zip(cosines.tolist(), names, strict=True):
        best[name] = max(best.get(name, -2.0), round(score, 12))
    return sorted(best.items(), key=lambda item: -item[1])[:k]  # ties stay in the order of enrollment


@pytest.mark.parametrize(("people", "each", "k"), [(40, 1, 1), (40, 1, 5), (6, 30, 4), (3, 25, 10), (1, 50, 2)])
def test_it_is_that_of_loops(gallery, way, people, each, k):
    centres = torch.randn(people, 6).repeat_interleave(each, 0)
    features = centres + 0.05 * torch.randn_like(centres)
    names = [f"p{i // each}" for i in range(people * each)]
    gallery.enrol(names, features)
    probes = torch.cat([torch.randn(15, 6), features[::9], 1e-18 * torch.ones(1, 6), 1e18 * torch.ones(1, 6)])
    for probe, found in zip(probes, gallery.identify(probes, k, threshold=0.5), strict=True):
        expected = by_loops(probe, features, names, k)
        assert [match.identity for match in found.candidates] == [name for name, _ in expected]
        assert [match.score for match in found.candidates] == pytest.approx([score for _, score in expected], abs=1e-9)


def test_more_ties_than_it_looks_at_first_come_in_the_order_of_enrolment(gallery, way):
    names = [f"p{i}" for i in torch.randperm(60).tolist()]
    gallery.enrol(names, torch.ones(60, 5) * torch.rand(60, 1))
    probes = torch.stack([torch.ones(5), torch.tensor([1.0, 2, 3, 4, 5]), torch.zeros(5)])
    for found in gallery.identify(probes, 3, threshold=0.5):
        assert [match.identity for match in found.candidates] == names[:3]


def test_more_than_a_thousand_identities_are_returned_when_asked_for(gallery, way):
    gallery.enrol([f"p{i}" for i in range(1100)], torch.randn(1100, 3))
    (found,) = gallery.identify(torch.ones(3), 1050, threshold=0.5)
    assert len({match.identity for match in found.candidates}) == 1050


def test_what_changes_between_two_searches_is_seen(gallery, way):
    gallery.enrol(["ada", "bob"], torch.eye(2))
    assert [m.identity for m in gallery.identify(torch.tensor([1.0, 0.1]), 2, threshold=0.5)[0].candidates] == [
        "ada",
        "bob",
    ]
    gallery.remove("ada")
    assert [m.identity for m in gallery.identify(torch.tensor([1.0, 0.1]), 2, threshold=0.5)[0].candidates] == ["bob"]
    gallery.remove("bob")
    with pytest.raises(ValueError, match="is empty"):
        gallery.identify(torch.tensor([1.0, 0.1]), threshold=0.5)


def test_rows_of_another_form_are_refused(gallery):
    gallery.enrol("ada", torch.rand(20, 3))
    store = gallery._store
    with store._transaction(), pytest.raises(OSError, match="in an unknown format"):
        list(postgres_scan.read_blocks(store._db, store._templates, 2))


def test_the_best_of_blocks_are_those_of_all():
    features, probes = torch.randn(50, 4), torch.randn(9, 4)
    parts = zip(np.arange(50).reshape(5, 10), features.split(10), strict=True)
    blocks = [Block(numbers + 100, numbers // 3, part) for numbers, part in parts]
    blocks.insert(2, Block(np.empty(0, np.int64), np.empty(0, np.int64), torch.empty(0, 4)))
    cosines = torch.cosine_similarity(probes[:, None].double(), features[None].double(), dim=-1)
    for row, found in zip(cosines, find_best_templates(probes, blocks, 12), strict=True):
        order = row.argsort(descending=True)[:12].tolist()
        assert [(one.number, one.owner) for one in found] == [(i + 100, i // 3) for i in order]
        assert [one.score for one in found] == pytest.approx(row[order].tolist(), abs=1e-6)
    assert find_best_templates(probes[:2], blocks[2:3], 3) == [[], []]


def test_what_is_worth_scoring():
    found = [Found(1, 1, 0.9), Found(2, 1, 0.899), Found(3, 2, 0.8), Found(4, 3, 0.799), Found(5, 1, 0.5)]
    assert select_for_scoring(found, 1, 0.01) == (found[:2], True)
    assert select_for_scoring(found, 2, 0.01) == (found[:4], True)  # the third identity may turn out to be the second
    assert select_for_scoring(found[:4], 2, 0.01) == (found[:4], False)  # so may identities that were not fetched
    assert select_for_scoring(found, 4, 0.01) == (found[:4], False)  # there may be more identities
