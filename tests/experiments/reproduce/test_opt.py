from hypersphere.experiments.reproduce import opt
from hypersphere.training import replace, to_json

from .contracts import ClaimContract


class TestOPT(ClaimContract):
    claim = opt.CLAIM

    def test_arms_differ_in_part_iv_only(self):
        cnn = {
            name: config
            for name, config in self.claim.arms("laptop").items()
            if name.startswith("CNN-6") and "HS-MHE" not in name
        }
        plain = {to_json(replace(config, orthogonal=None, regularizer=None)) for config in cnn.values()}
        assert plain == {to_json(cnn["CNN-6/baseline"])}
        assert len({to_json(config) for config in cnn.values()}) == len(cnn)

    def test_arms_start_where_their_baseline_does(self):
        """An arm and its baseline never differ in the initialisation of their neurons."""
        for size in ("laptop", "paper"):
            groups = {}
            for name, config in self.claim.arms(size).items():
                groups.setdefault(name.partition("/")[0], set()).add(config.model.arguments.get("init"))
            assert all(len(starts) == 1 for starts in groups.values())
