from hypersphere.experiments.reproduce import spherenet

from .contracts import ClaimContract


class TestSphereNet(ClaimContract):
    claim = spherenet.CLAIM

    def test_groups_take_away_what_they_say(self):
        arms = self.claim.arms("laptop")

        def found(group, argument):
            return {c.model.arguments.get(argument) for name, c in arms.items() if name.startswith(group)}

        assert found("no ReLU", "activation") == {"none"}
        assert found("no BN", "norm") == {"none"}
        assert [name for name, config in arms.items() if config.project_every] == [spherenet.PROJECTED]
