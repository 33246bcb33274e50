"""The contract of all claims. The test of a new claim inherits it and adds its own checks."""

import tempfile

import pytest

from hypersphere.training import from_json, to_json
from studies.liu2020 import SIZES, Claim, Training, get_claim
from studies.liu2020.tuning import uses_ogd


class ClaimContract:
    """Tests that the parts of a claim fit together."""

    claim: Claim

    def configs(self, size="laptop"):
        """Return the configs of the arms that train."""
        return {name: arm.config for name, arm in self.claim.arms(size).items() if isinstance(arm, Training)}

    def test_it_is_found_by_its_id(self):
        assert get_claim(self.claim.id) is self.claim

    @pytest.mark.parametrize("size", SIZES)
    def test_every_arm_has_a_setting_that_can_be_stored(self, size):
        alone = all(isinstance(check.than, float) for check in self.claim.checks)  # only published numbers to compare
        assert len(self.claim.arms(size)) >= (1 if alone else 2)
        assert all(to_json(from_json(to_json(config))) == to_json(config) for config in self.configs(size).values())
        settings = [str(arm.list_settings()) for arm in self.claim.arms(size).values()]
        assert len(set(settings)) == len(settings)

    @pytest.mark.parametrize("size", SIZES)
    def test_compared_arms_differ_only_in_what_the_claim_is_about(self, size):
        assert self.claim.find_unfair_settings(size) == {}
        assert all(self.claim.compare_arms(size).values())

    def test_arms_have_the_same_budget_within_a_group(self):
        for size in SIZES:
            groups = {}
            for name, config in self.configs(size).items():
                groups.setdefault(name.rpartition("/")[0], set()).add(
                    (config.steps, config.batch_size, config.backbone.arguments.get("width"))
                )
            assert all(len(budgets) == 1 for budgets in groups.values())

    def test_the_sizes_have_the_same_arms(self):
        assert list(self.claim.arms("laptop")) == list(self.claim.arms("paper"))

    def test_checks_compare_arms_and_metrics_there_are(self):
        arms = self.claim.arms("laptop")
        assert self.claim.checks
        derived = {"early", "energy_drift", "margin", "ratio_gap"}
        for check in self.claim.checks:
            assert check.arm in arms
            assert isinstance(check.than, float) or check.than in arms
            assert check.metric in {*self.claim.metrics, *derived}
        assert len({check.name for check in self.claim.checks}) == len(self.claim.checks)

    def test_published_pairs_are_in_the_claimed_direction(self):
        for check in self.claim.checks:
            if check.published is not None:
                assert (check.published[0] > check.published[1]) == check.larger

    def test_it_says_what_was_published_and_what_differs(self):
        assert self.claim.published
        assert self.claim.text.differences
        assert self.claim.text.statement
        assert self.claim.text.conclusion
        assert self.claim.caption

    def test_every_training_arm_chooses_its_rate_and_the_weight_of_its_penalty(self):
        tuning = self.claim.tuning
        assert (tuning is None) == (not self.configs())
        for config in self.configs().values():
            assert tuning.shorten(config).steps <= config.steps
            axes = {axis.name: axis for axis in tuning.axes if axis.applies(config)}
            penalised = config.energy is not None
            assert set(axes) == {"lr"} | ({"weight"} if penalised else set()) | (
                {"rotations"} if uses_ogd(config) else set()
            )
            for axis in axes.values():
                changed = {to_json(axis.change(config, factor)) for factor in axis.factors}
                assert len(changed) == len(axis.factors)

    def test_an_empty_picture_can_be_drawn(self):
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            self.claim.picture([]).savefig(file.name)
            assert file.read(4) == b"\x89PNG"
