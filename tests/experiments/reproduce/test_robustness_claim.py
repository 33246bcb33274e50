from hypersphere.config import call
from hypersphere.data import Digits
from hypersphere.experiments.reproduce import robustness_claim
from hypersphere.training import replace

from .contracts import ClaimContract


class TestRobustness(ClaimContract):
    claim = robustness_claim.CLAIM

    def test_radii_are_learned_and_nothing_is_normalized(self):
        for name, config in self.configs().items():
            assert config.model.get("norm") == "none"
            operator = config.model.arguments.get("operator")
            if name.endswith(("BallConv", "TanhConv")):
                assert operator.get("magnitude").get("learnable_radius") is True

    def test_attacks_are_carried_over_from_a_convolution_started_elsewhere(self, tmp_path):
        arm = self.claim.arms("laptop")["natural/SphereConv"]
        small = replace(
            arm.config,
            steps=2,
            evaluate_every=2,
            data=call(Digits),
            images__size=8,
            model__width=0.125,
            task__iterations=2,
            task__attacked_images=8,
        )
        measured = arm.with_config(small)
        few = type(arm)(small, (call(robustness_claim.withstood, images=4),))
        metrics = few.row(0, tmp_path / "laptop" / "natural" / "SphereConv" / "0", threads=1)["metrics"]
        assert {"black_fgsm_accuracy", "black_bim_accuracy", "masking", "deepfool", "no_gradient"} <= set(metrics)
        attacker = (tmp_path / "laptop" / "attacker" / "0" / "config.json").read_text()
        assert '"seed": 1000' in attacker
        assert "Sphere" not in attacker
        assert measured.measures == arm.measures
