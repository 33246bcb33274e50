from hypersphere.orthogonal import overparameterize
from studies.liu2020.claims import opt

from .contracts import ClaimContract


class TestOPT(ClaimContract):
    claim = opt.CLAIM

    def test_arms_start_where_their_baseline_does(self):
        """An arm and its baseline initialize their neurons alike."""
        for size in ("laptop", "paper"):
            groups = {}
            for name, config in self.configs(size).items():
                groups.setdefault(name.rpartition("/")[0], set()).add(config.backbone.arguments.get("init"))
            assert all(len(starts) == 1 for starts in groups.values())
            assert groups["MLP, Normal"] == {"normal"}

    def test_rotations_start_as_the_identity(self):
        for config in self.configs().values():
            if config.orthogonal is not None and config.orthogonal.target is overparameterize:
                assert config.orthogonal.get("start") == "identity"
