import dataclasses

import torch

from hypersphere.config import call
from hypersphere.data import Digits, ImbalancedSingle
from hypersphere.training import replace
from studies.liu2020.claims import imbalance

from .contracts import ClaimContract


class TestImbalance(ClaimContract):
    claim = imbalance.CLAIM

    def test_classes_are_regularised_in_full_space_wherever_neurons_are(self):
        """λ_o = 1 over all classes in every experiment with MHE (D.1). The 2-D one gives none, so tuning tries 1."""
        for name, config in self.configs().items():
            if "MHE" in name:
                weight = 10.0 if name.startswith("MNIST") else 1.0
                assert (config.energy.get("output"), config.energy.get("data_dependent")) == (weight, False)
        weights = self.claim.tuning.axes[1]
        assert 1.0 in [weights.change(self.configs()["MNIST/MHE"], f).energy.get("output") for f in weights.factors]

    def test_a_hundred_zeros_are_kept(self):
        assert self.configs()["MNIST/baseline"].samples.imbalance == call(ImbalancedSingle, keep=100)

    def test_the_rare_class_is_measured_by_itself(self, tmp_path):
        arm = self.claim.arms("laptop")["MNIST/MHE"]
        samples = dataclasses.replace(arm.config.samples, imbalance=call(ImbalancedSingle, keep=5))
        small = replace(
            arm.config, {"backbone.width": 0.0625}, steps=2, evaluate_every=2, data=call(Digits), samples=samples
        )
        metrics = arm.with_config(small).make_row(0, tmp_path / "run", threads=1)["metrics"]
        assert 0 <= metrics["rare_error"] <= 100
        assert 0 <= metrics["rare_angle"] <= torch.pi
