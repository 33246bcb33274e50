from hypersphere.experiments.reproduce import spherenet

from .contracts import ClaimContract


class TestSphereNet(ClaimContract):
    claim = spherenet.CLAIM

    def test_groups_take_away_what_they_say(self):
        arms = self.claim.arms("laptop")
        assert {config.model.activation for name, config in arms.items() if name.startswith("no ReLU")} == {"none"}
        assert {config.model.norm for name, config in arms.items() if name.startswith("no BN")} == {"none"}
        assert [name for name, config in arms.items() if config.model.operator.project_every] == [spherenet.PROJECTED]
