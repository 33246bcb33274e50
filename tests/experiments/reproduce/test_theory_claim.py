from hypersphere.experiments.reproduce.theory_claim import CLAIM

from .contracts import ClaimContract


class TestTheory(ClaimContract):
    claim = CLAIM
