from hypersphere.experiments.reproduce import spherenet

from .contracts import ClaimContract


class TestSphereNet(ClaimContract):
    claim = spherenet.CLAIM

    def test_groups_change_what_they_say(self):
        arms = self.configs()

        def found(group, argument):
            return {c.model.arguments.get(argument) for name, c in arms.items() if name.startswith(group)}

        assert found("no ReLU", "activation") == {"none"}
        assert {c.model.name for name, c in arms.items() if name.startswith("CNN-45")} == {"cnn45"}
        assert {c.head.name for name, c in arms.items() if name.startswith("A-Softmax")} == {"SphereFace"}

    def test_nothing_decays(self):
        """SphereNets train without weight decay (3.1, 3.2.4)."""
        for size in ("laptop", "paper"):
            assert {config.optimizer.get("weight_decay") for config in self.configs(size).values()} == {0.0}
