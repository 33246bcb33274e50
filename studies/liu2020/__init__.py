"""Claims of Liu (2020), tested on real data with small runs: ``python -m studies.liu2020 ID``."""

from .arms import Arm, Computation, Training, compare_settings
from .claim import SIZES, Check, Claim, ClaimText, Published, Size, decide_verdict
from .claims import CLAIMS, get_claim
from .effects import Effect, Estimate
from .runner import count_missing, reproduce, run_pilot
from .tuning import Axis, Tuning, divide_steps, make_rate_axis, make_weight_axis

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
    "compare_settings",
    "count_missing",
    "decide_verdict",
    "divide_steps",
    "get_claim",
    "make_rate_axis",
    "make_weight_axis",
    "reproduce",
    "run_pilot",
]
