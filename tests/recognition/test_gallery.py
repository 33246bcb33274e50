"""Tests of the class itself. ``contracts.py`` tests what galleries do in every store."""

import threading

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from hypersphere.files import checksum
from hypersphere.recognition import Gallery
from tests.recognition.drawn import draw_folder, small_embedder


def test_a_module_is_known_by_its_weights_or_its_own_fingerprint():
    model = nn.Linear(3, 2)
    with Gallery(":memory:", model) as gallery:
        assert gallery.fingerprint == checksum({}, model.state_dict())
    model.fingerprint = "abc"
    with Gallery(":memory:", model) as gallery:
        assert gallery.fingerprint == "abc"


def test_half_precision_and_gradients_are_taken():
    with Gallery(":memory:") as gallery:
        gallery.enrol("ada", torch.ones(3, dtype=torch.bfloat16))
        features = torch.ones(1, 3, requires_grad=True)
        assert gallery.identify(features, threshold=0.9)[0].accepted


def test_a_gallery_that_grew_past_its_calibration_is_warned_of():
    with Gallery(":memory:") as gallery:
        gallery.enrol([str(i) for i in range(5)], torch.randn(5, 4))
        gallery.calibrate(fpir=0.1, strangers=torch.randn(40, 4), people=range(40))
        gallery.enrol([str(i) for i in range(5, 11)], torch.randn(6, 4))
        with pytest.warns(UserWarning, match="calibrated for 5 identities, there are 11 now"):
            gallery.identify(torch.randn(4))


def test_a_score_reranks_only_the_nearest():
    with Gallery(":memory:") as gallery:
        gallery.enrol(["near", "middle", "far"], torch.tensor([[1.0, 0.1], [1.0, 1.0], [-1.0, 0.0]]))
        least = gallery.identify(torch.tensor([1.0, 0.0]), threshold=0.0, score=lambda p, t: -(p @ t.T), among=2)
        assert least[0].best.identity in ("near", "middle")
        least = gallery.identify(torch.tensor([1.0, 0.0]), threshold=0.0, score=lambda p, t: -(p @ t.T))
        assert least[0].best.identity == "far"


def test_threads_take_turns(tmp_path):
    errors = []
    with Gallery(tmp_path / "people.db") as gallery:
        gallery.enrol("first", torch.ones(8))

        def work(name):
            try:
                for i in range(8):
                    gallery.enrol(f"{name} {i}", torch.randn(8))
                    gallery.identify(torch.randn(8), threshold=0.5)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(gallery) == 25
        assert gallery.check() == []


def test_a_gallery_with_an_embedder_takes_pictures_paths_and_features_alike(tmp_path):
    folder, embedder = draw_folder(tmp_path, 3, 4), small_embedder()
    path = next(folder.rglob("*.png"))
    with Gallery(":memory:", embedder) as gallery:
        for person in sorted(folder.iterdir()):
            gallery.enroll(person.name, person)
        assert gallery.list() == {person.name: 4 for person in folder.iterdir()}
        gallery.enrol(path.parent.name, path)  # enrolling the same source again replaces its template
        assert sum(gallery.list().values()) == 12
        probes = [path, str(path), Image.open(path), np.asarray(Image.open(path)), embedder(path), embedder(path)[0]]
        for probe in probes:
            (answer,) = gallery.identify(probe, threshold=0.5)
            assert answer.name == path.parent.name
            assert answer.best.score == pytest.approx(1, abs=1e-5)
        assert len(gallery.identify([path, path], threshold=0.5)) == 2
        assert len(gallery.identify(folder, threshold=0.5)) == 12
        with pytest.warns(UserWarning, match="calibrate for identification"):
            assert gallery.calibrate(far=0.1, pairs=folder).by == "far"
        assert gallery.verify(path.parent.name, path)[0].accepted
    with Gallery(":memory:") as gallery, pytest.raises(ValueError, match="opened without an embedder takes features"):
        gallery.enrol("ada", path)


def test_calibrate_needs_a_rate_and_its_data():
    with Gallery(":memory:") as gallery:
        for options in ({}, {"far": 0.1}, {"fpir": 0.1, "pairs": ()}, {"far": 0.1, "fpir": 0.1}):
            with pytest.raises(ValueError, match="calibrate needs far and pairs, or fpir and strangers"):
                gallery.calibrate(**options)


def test_a_gallery_says_what_it_is(tmp_path):
    with Gallery(tmp_path / "people.db", "0123456789abcdef") as gallery:
        gallery.enrol(["ada", "bob"], torch.eye(2))
        gallery.calibrate(fpir=0.5, strangers=torch.randn(8, 2), people=range(8))
        said = repr(gallery)
    assert said.startswith(f"Gallery('{tmp_path / 'people.db'}': 2 identities, model 0123456789ab, fpir=0.5 at ")
    assert repr(gallery).endswith("closed)")


def test_reranking_orders_candidates_and_keeps_their_cosines():
    """The probe is slightly nearer to one template of another person than to any of its own three."""
    own = torch.tensor([[1.0, 0.30, 0.0], [1.0, 0.32, 0.0], [1.0, 0.34, 0.0]])
    with Gallery(":memory:") as gallery:
        gallery.enrol(["ada"] * 3, own)
        gallery.enrol("bob", torch.tensor([1.0, -0.25, 0.0]))
        gallery.enrol(["far"] * 2, torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.1, 1.0]]))
        probe = torch.tensor([1.0, 0.02, 0.0])
        plain = gallery.identify(probe, k=2, threshold=0.9)[0].candidates
        found = gallery.identify(probe, k=2, threshold=0.9, rerank=True)[0].candidates
        assert [match.identity for match in plain] == ["bob", "ada"]
        assert [match.identity for match in found] == ["ada", "bob"]
        assert set(found) == set(plain)
        assert gallery.identify(probe, threshold=0.999, rerank=True)[0].name is None
        with pytest.raises(ValueError, match="rerank and score must not both be given"):
            gallery.identify(probe, threshold=0.9, rerank=True, score=lambda a, b: a @ b.T)
