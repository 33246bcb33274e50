from hypersphere.experiments.reproduce import objectives_openset
from hypersphere.training.config import replace

from .contracts import ClaimContract


class TestObjectivesOpenset(ClaimContract):
    claim = objectives_openset.CLAIM

    def test_sphereface_plus_is_a_softmax_with_the_energy_of_classes(self):
        arms = self.claim.arms("laptop")
        assert replace(arms["A-Softmax m = 4"], energy__classes=1.0) == arms["SphereFace+ m = 4"]
