from types import SimpleNamespace

import torch

from hypersphere.angular import Sigmoid
from studies.liu2020.claims import spherenet

from .contracts import ClaimContract


class TestSphereNet(ClaimContract):
    claim = spherenet.CLAIM

    def test_groups_change_what_they_say(self):
        arms = self.configs()

        def found(group, argument):
            return {c.backbone.arguments.get(argument) for name, c in arms.items() if name.startswith(group)}

        assert found("no ReLU", "activation") == {"none"}
        assert {c.backbone.name for name, c in arms.items() if name.startswith("CNN-45")} == {"cnn45"}
        assert {c.head.name for name, c in arms.items() if name.startswith("A-Softmax")} == {"SphereFace"}

    def test_nothing_decays(self):
        """SphereNets train without weight decay (3.1, 3.2.4)."""
        for size in ("laptop", "paper"):
            assert {config.optimizer.get("weight_decay") for config in self.configs(size).values()} == {0.0}


def test_learned_curvatures_are_summed_up_by_three_quantiles():
    net = torch.nn.Sequential(Sigmoid(0.3, learnable="filter").for_neurons(10), Sigmoid(0.3))
    with torch.no_grad():
        net[0].log_k.copy_(torch.arange(1, 11).log())
    found = spherenet.measure_curvatures(SimpleNamespace(task=net))
    assert [round(value, 4) for value in found.values()] == [1.9, 5.5, 9.1]
    assert spherenet.measure_curvatures(SimpleNamespace(task=net[1])) == {}
