from hypersphere.experiments.reproduce import mhe
from hypersphere.experiments.reproduce.runner import run_one
from hypersphere.training.config import replace

from .contracts import ClaimContract


class TestMHE(ClaimContract):
    claim = mhe.CLAIM

    def test_classes_are_regularised_only_where_one_is_rare(self):
        arms = self.claim.arms("laptop")
        assert [name for name, config in arms.items() if config.energy.output] == ["imbalanced/half-space MHE"]
        assert {config.data.imbalance for name, config in arms.items() if name.startswith("imbalanced")} == {"single"}

    def test_the_rare_class_is_measured_by_itself(self, tmp_path):
        arm = self.claim.arms("laptop")["imbalanced/baseline"]
        small = replace(
            arm, steps=1, data__name="Digits", data__channels=1, data__per_class=20, model__width=0.0625, pictures=False
        )
        metrics = run_one(small, tmp_path / "run")["metrics"]
        assert 0 <= metrics["rare_error"] <= 100
