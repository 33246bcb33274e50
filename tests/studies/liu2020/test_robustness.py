import json

from hypersphere.config import call
from hypersphere.data import Digits
from hypersphere.training import replace
from studies.liu2020 import Training
from studies.liu2020.claims import robustness

from .contracts import ClaimContract


class TestRobustness(ClaimContract):
    claim = robustness.CLAIM

    def test_radii_are_learned_and_nothing_is_normalized(self):
        for name, config in self.configs().items():
            assert config.backbone.get("norm") == "none"
            operator = config.backbone.arguments.get("operator")
            if name.endswith(("BallConv", "TanhConv")):
                assert operator.get("magnitude").get("learnable_radius") is True

    def test_attacks_are_carried_over_from_a_convolution_started_elsewhere(self, tmp_path):
        arm = self.claim.arms("laptop")["natural/SphereConv"]
        small = replace(
            arm.config,
            {"backbone.width": 0.125, "task.iterations": 2, "task.attacked_images": 8},
            steps=2,
            evaluate_every=2,
            data=call(Digits),
            size=8,
        )
        measures = (call(robustness.measure_robustness, rate=0.002, images=4),)
        place = tmp_path / "laptop"
        first = Training(small, measures).make_row(0, place / "natural" / "SphereConv" / "0", threads=1)["metrics"]
        assert {"black_fgsm_accuracy", "black_bim_accuracy", "masking", "deepfool", "no_gradient"} <= set(first)
        attacker = (place / "attacker" / "0" / "config.json").read_text()
        assert '"seed": 1000' in attacker
        assert "Sphere" not in attacker
        trained = replace(
            small, {"task.attacked": 0.5, "optimizer.lr": 0.01}
        )  # another arm with another rate of its own
        Training(trained, measures).make_row(0, place / "FGSM-trained" / "SphereConv" / "0", threads=1)
        events = (place / "attacker" / "0" / "events.jsonl").read_text().splitlines()
        assert [json.loads(line)["event"] for line in events].count("start") == 1
