from hypersphere.energy import MHE
from hypersphere.experiments.reproduce import objectives_openset
from hypersphere.training import replace, to_json

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
