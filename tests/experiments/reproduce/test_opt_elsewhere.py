from hypersphere.experiments.reproduce import opt_elsewhere

from .contracts import ClaimContract


class TestOptElsewhere(ClaimContract):
    claim = opt_elsewhere.CLAIM
