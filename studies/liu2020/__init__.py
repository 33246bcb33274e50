"""Claims of Liu (2020), tested on real data with runs that a small machine can do: ``python -m studies.liu2020 ID``."""

from .arms import Arm, Computation, Training, differing
from .claim import SIZES, Check, Claim, ClaimText, Published, Size, verdict
from .claims import CLAIMS, get_claim
from .effects import Effect, Estimate
from .runner import missing, pilot, reproduce
from .tuning import Axis, Tuning, rates, shorter, weights

__all__ = [
    "CLAIMS",
    "SIZES",
    "Arm",
    "Axis",
    "Check",
    "Claim",
    "ClaimText",
    "Computation",
    "Effect",
    "Estimate",
    "Published",
    "Size",
    "Training",
    "Tuning",
    "differing",
    "get_claim",
    "missing",
    "pilot",
    "rates",
    "reproduce",
    "shorter",
    "verdict",
    "weights",
]
