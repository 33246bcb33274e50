"""What every claim must be; a new one inherits this and adds only what is its own."""

import tempfile

import pytest

from hypersphere.experiments.reproduce import SIZES, Claim, get
from hypersphere.training import from_json, to_json


class ClaimContract:
    """A claim whose parts fit together."""

    claim: Claim

    def test_it_is_found_by_its_id(self):
        assert get(self.claim.id) is self.claim

    @pytest.mark.parametrize("size", SIZES)
    def test_every_arm_is_a_config_that_can_be_stored(self, size):
        arms = self.claim.configs(size)
        assert len(arms) >= 2
        assert all(to_json(from_json(to_json(config))) == to_json(config) for config in arms.values())

    def test_arms_have_the_same_budget_within_a_group(self):
        for size in SIZES:
            groups = {}
            for name, config in self.claim.arms(size).items():
                groups.setdefault(name.rpartition("/")[0], set()).add(
                    (config.steps, config.batch_size, config.model.arguments.get("width"))
                )
            assert all(len(budgets) == 1 for budgets in groups.values())

    def test_the_sizes_have_the_same_arms(self):
        assert list(self.claim.arms("laptop")) == list(self.claim.arms("paper"))

    def test_checks_compare_arms_and_metrics_there_are(self):
        arms = self.claim.arms("laptop")
        assert self.claim.checks
        for check in self.claim.checks:
            assert check.arm in arms
            assert isinstance(check.than, float) or check.than in arms
            assert check.metric in {*self.claim.metrics, "early", "energy_drift"}
        assert len({check.name for check in self.claim.checks}) == len(self.claim.checks)

    def test_it_says_what_was_published_and_what_differs(self):
        assert self.claim.published
        assert self.claim.differences
        assert self.claim.statement
        assert self.claim.caption

    def test_tuning_shortens_and_never_measures_the_test_set(self):
        if self.claim.tuning is None:
            assert self.claim.id == "objectives-openset"
            return
        for config in self.claim.arms("laptop").values():
            assert self.claim.tuning.short(config).steps <= config.steps
            changed = [change(config).optimizer.get("lr") for change in self.claim.tuning.grid.values()]
            assert len(set(changed)) == len(changed)

    def test_an_empty_picture_can_be_drawn(self):
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            self.claim.picture([]).savefig(file.name)
            assert file.read(4) == b"\x89PNG"
