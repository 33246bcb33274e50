from studies.liu2020.claims.theory import CLAIM

from .contracts import ClaimContract


class TestTheory(ClaimContract):
    claim = CLAIM
