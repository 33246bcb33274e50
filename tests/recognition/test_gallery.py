"""The door itself; what galleries do in either store is in ``contracts.py``."""

import threading

import pytest
import torch
from torch import nn

from hypersphere.files import checksum
from hypersphere.recognition import Gallery


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
        assert gallery.identify(features, threshold=0.9)[0][0].accepted


def test_a_gallery_that_grew_past_its_calibration_is_warned_of():
    with Gallery(":memory:") as gallery:
        gallery.enrol([str(i) for i in range(5)], torch.randn(5, 4))
        gallery.calibrate_fpir(torch.randn(20, 4), 0.1)
        gallery.enrol([str(i) for i in range(5, 11)], torch.randn(6, 4))
        with pytest.warns(UserWarning, match="calibrated for 5 identities, there are 11 now"):
            gallery.identify(torch.randn(4))


def test_a_score_reranks_only_the_nearest():
    with Gallery(":memory:") as gallery:
        gallery.enrol(["near", "middle", "far"], torch.tensor([[1.0, 0.1], [1.0, 1.0], [-1.0, 0.0]]))
        least = gallery.identify(torch.tensor([1.0, 0.0]), threshold=0.0, score=lambda p, t: -(p @ t.T), among=2)
        assert least[0][0].identity in ("near", "middle")
        least = gallery.identify(torch.tensor([1.0, 0.0]), threshold=0.0, score=lambda p, t: -(p @ t.T))
        assert least[0][0].identity == "far"


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
