from hypersphere.config import call
from hypersphere.data import Digits, ImbalancedSingle
from hypersphere.experiments.reproduce import mhe_claim as mhe
from hypersphere.experiments.reproduce.runner import run_one
from hypersphere.training import replace

from .contracts import ClaimContract


class TestMHE(ClaimContract):
    claim = mhe.CLAIM

    def test_classes_are_regularised_in_full_space_wherever_neurons_are(self):
        """λ_o = 1 over all classes in every experiment with MHE (D.1)."""
        for name, config in self.claim.arms("laptop").items():
            if config.energy is None:
                assert name.endswith("/baseline")
            elif name.endswith("orthonormal"):
                assert "output" not in config.energy.arguments
            else:
                assert (config.energy.get("output"), config.energy.get("data_dependent")) == (1.0, False)

    def test_one_class_is_rare(self):
        arms = self.claim.arms("laptop")
        rare = {c.samples.imbalance.target for name, c in arms.items() if name.startswith("imbalanced")}
        assert rare == {ImbalancedSingle}
        assert not any(c.samples.imbalance for name, c in arms.items() if not name.startswith("imbalanced"))

    def test_the_worst_class_is_measured_by_itself(self, tmp_path):
        arm = self.claim.arms("laptop")["imbalanced/baseline"]
        small = replace(arm, steps=1, data=call(Digits), samples__per_class=20, model__width=0.0625, pictures=False)
        metrics = run_one(small, tmp_path / "run")["metrics"]
        assert 0 <= metrics["worst_class_error"] <= 100
