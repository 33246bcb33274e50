"""The claims of Liu (2020), tested on real data at a size a small machine can run: ``hypersphere reproduce ID``."""

from ...config import nearest
from . import (
    decoupled,
    full_size,
    imbalance,
    mhe_claim,
    objectives_mnist,
    objectives_openset,
    one_shot,
    opt,
    opt_elsewhere,
    robustness_claim,
    spherenet,
    theory_claim,
)
from .arms import Arm, Computation, Training, differing
from .claim import SIZES, Check, Claim, Published, Size, verdict
from .effects import Effect, Estimate
from .runner import missing, pilot, reproduce
from .tuning import Axis, Tuning, rates, shorter, weights

CLAIMS: dict[str, Claim] = {
    module.CLAIM.id: module.CLAIM
    for module in (
        theory_claim,
        one_shot,
        imbalance,
        opt,
        objectives_mnist,
        objectives_openset,
        robustness_claim,
        opt_elsewhere,
        mhe_claim,
        spherenet,
        decoupled,
        full_size,
    )
}
"""In the order in which ``make reproduce`` runs them: what shows within minutes first."""


def get(id: str) -> Claim:
    """The claim of an id; an unknown one is an error that lists those there are and the nearest.

    >>> from hypersphere.experiments import reproduce
    >>> reproduce.get("theory").title
    'Lemmas, theorems and the two pictures'
    >>> reproduce.get("theorie")
    Traceback (most recent call last):
    ...
    ValueError: there is no claim 'theorie'; there are ...; did you mean theory?
    """
    if id not in CLAIMS:
        raise ValueError(f"there is no claim {id!r}; there are {', '.join(CLAIMS)}{nearest(id, CLAIMS)}")
    return CLAIMS[id]


__all__ = [
    "CLAIMS",
    "SIZES",
    "Arm",
    "Axis",
    "Check",
    "Claim",
    "Computation",
    "Effect",
    "Estimate",
    "Published",
    "Size",
    "Training",
    "Tuning",
    "differing",
    "get",
    "missing",
    "pilot",
    "rates",
    "reproduce",
    "shorter",
    "verdict",
    "weights",
]
