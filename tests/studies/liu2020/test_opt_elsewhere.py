from studies.liu2020.claims import opt_elsewhere

from .contracts import ClaimContract


class TestOptElsewhere(ClaimContract):
    claim = opt_elsewhere.CLAIM
