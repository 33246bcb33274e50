from studies.liu2020.claims import decoupled

from .contracts import ClaimContract


class TestDecoupled(ClaimContract):
    claim = decoupled.CLAIM

    def test_radii_are_learned_where_there_is_one(self):
        for name, config in self.configs().items():
            operator = config.backbone.arguments.get("operator")
            if operator is not None and name.endswith(("BallConv", "TanhConv", "SegConv")):
                assert operator.get("magnitude").get("learnable_radius") is True
