from hypersphere.experiments.reproduce import objectives_mnist
from hypersphere.training import replace, to_json

from .contracts import ClaimContract


class TestObjectivesMnist(ClaimContract):
    claim = objectives_mnist.CLAIM

    def test_arms_differ_in_the_margin_only(self):
        arms = list(self.claim.arms("laptop").values())
        assert [config.head.get("m") for config in arms] == [1, 2, 3, 4]
        assert len({to_json(replace(config, head__m=1)) for config in arms}) == 1
