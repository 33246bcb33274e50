from hypersphere.experiments.reproduce import opt
from hypersphere.training.config import replace

from .contracts import ClaimContract


class TestOPT(ClaimContract):
    claim = opt.CLAIM

    def test_arms_differ_in_part_iv_only(self):
        cnn = {
            name: config
            for name, config in self.claim.arms("laptop").items()
            if name.startswith("CNN-6") and "HS-MHE" not in name
        }
        plain = cnn["CNN-6/baseline"].orthogonal
        assert {replace(config, orthogonal=plain) for config in cnn.values()} == {cnn["CNN-6/baseline"]}
        assert len({config.orthogonal for config in cnn.values()}) == len(cnn)
