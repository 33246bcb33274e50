from types import SimpleNamespace

import torch

from hypersphere.data import InMemory
from hypersphere.energy import MHE
from hypersphere.training import replace, to_json
from studies.liu2020.claims import objectives_openset

from .contracts import ClaimContract


class TestObjectivesOpenset(ClaimContract):
    claim = objectives_openset.CLAIM

    def test_sphereface_plus_is_a_softmax_with_the_energy_of_classes(self):
        arms = self.configs()
        for m in objectives_openset.MARGINS:
            plus = arms[f"SphereFace+ m = {m}"]
            assert (plus.energy.target, plus.energy.get("hidden"), plus.energy.get("output")) == (MHE, 0.0, 1.0)
            assert to_json(replace(plus, energy=None)) == to_json(arms[f"A-Softmax m = {m}"])

    def test_lambda_reaches_its_floor_before_the_end(self):
        law = self.configs()["A-Softmax m = 4"].head.get("annealing")
        end = law.get("start") / (1 + law.get("rate") * objectives_openset.STEPS)
        assert end < law.get("floor")


def test_more_distractors_make_identification_no_easier(monkeypatch):
    """Compared with a float64 loop over the probes."""
    torch.manual_seed(0)
    centres, labels = torch.randn(80, 8), torch.arange(80).repeat_interleave(3)
    features = centres[labels] + 0.7 * torch.randn(240, 8)
    task = SimpleNamespace(
        measured_samples=InMemory(features, labels, tuple(map(str, range(80)))), embed=lambda _: features
    )
    monkeypatch.setattr(objectives_openset, "DISTRACTORS", (0, 20))
    found = objectives_openset.identify_among_distractors(SimpleNamespace(task=task))
    unit = torch.nn.functional.normalize(features.double(), dim=1)
    for count in (0, 20):
        gallery = unit[::3][: 60 + count]
        right = [int((gallery @ unit[i]).argmax()) == labels[i] for i in range(180) if i % 3]
        assert abs(found[f"rank1_{count}"] - 100 * sum(right) / len(right)) < 1e-9
    assert 0 < found["rank1_20"] <= found["rank1_0"] < 100
