from studies.liu2020 import compare_settings, get_claim
from studies.liu2020.claims import full_size

from .contracts import ClaimContract


class TestFullSize(ClaimContract):
    claim = full_size.CLAIM

    def test_arms_are_those_of_their_claims_but_for_the_size_of_the_images(self):
        arms = self.claim.arms("laptop")
        for name, arm in arms.items():
            id, _, inner = name.partition(": ")
            assert compare_settings(get_claim(id).arms("laptop")[inner], arm) == {"size": (16, None)}
        assert len(arms) == 2 * len(full_size.COMPARED)

    def test_checks_are_those_of_their_claims(self):
        for check in self.claim.checks:
            id, _, inner = check.name.partition(": ")
            theirs = next(c for c in get_claim(id).checks if c.name == inner)
            assert (theirs.metric, theirs.larger, theirs.published) == (check.metric, check.larger, check.published)
            assert (f"{id}: {theirs.arm}", f"{id}: {theirs.than}") == (check.arm, check.than)
        assert {check.arm for check in self.claim.checks} == {f"{c.id}: {name}" for _, c, name, _ in full_size.COMPARED}
