from hypersphere.training import replace, to_json
from studies.liu2020.claims import objectives_mnist

from .contracts import ClaimContract


class TestObjectivesMnist(ClaimContract):
    claim = objectives_mnist.CLAIM

    def test_planar_arms_differ_in_the_margin_only(self):
        arms = [config for name, config in self.configs().items() if name.startswith("2-D/")]
        assert [config.head.get("m") for config in arms] == [1, 2, 3, 4]
        assert len({to_json(replace(config, {"head.m": 1})) for config in arms}) == 1

    def test_lambda_ends_where_the_authors_law_ends(self):
        """The final value of 1000·(1 + γ·steps)^−35 is the same for 18,000 steps and for a short run."""
        ends = []
        for size in ("laptop", "paper"):
            config = self.configs(size)["2-D/m = 4"]
            law = config.head.get("annealing")
            ends.append(law.get("start") * (1 + law.get("rate") * config.steps) ** -law.get("power"))
        assert abs(ends[0] - ends[1]) < 1e-9 * ends[1] + 1e-12

    def test_table_a_1_takes_away_one_thing_at_a_time(self):
        found = {pair: set(keys) for pair, keys in self.claim.compare_arms().items() if pair[0].startswith("A.1/")}
        assert found["A.1/B: bias", "A.1/A: ReLU, bias"] == {"backbone.last_activation"}
        assert found["A.1/C: softmax without bias", "A.1/B: bias"] == {"head.bias"}
        assert found["A.1/F: A-Softmax m = 3", "A.1/E: A-Softmax m = 2"] == {"head.m"}
