from hypersphere.energy import MHE
from hypersphere.experiments.reproduce import objectives_openset
from hypersphere.training import replace, to_json

from .contracts import ClaimContract


class TestObjectivesOpenset(ClaimContract):
    claim = objectives_openset.CLAIM

    def test_sphereface_plus_is_a_softmax_with_the_energy_of_classes(self):
        arms = self.claim.arms("laptop")
        plus = arms["SphereFace+ m = 4"]
        assert (plus.energy.target, plus.energy.get("hidden"), plus.energy.get("output")) == (MHE, 0.0, 1.0)
        assert to_json(replace(plus, energy=None)) == to_json(arms["A-Softmax m = 4"])
