"""The claims of Liu (2020), one module each. Their conclusions are in ``../text``."""

from hypersphere.config import suggest

from ..claim import Claim
from . import (
    decoupled,
    full_size,
    imbalance,
    mhe,
    objectives_mnist,
    objectives_openset,
    one_shot,
    opt,
    opt_elsewhere,
    robustness,
    spherenet,
    theory,
)

MODULES = (
    theory,
    one_shot,
    imbalance,
    opt,
    objectives_mnist,
    objectives_openset,
    robustness,
    opt_elsewhere,
    mhe,
    spherenet,
    decoupled,
    full_size,
)
CLAIMS: dict[str, Claim] = {module.CLAIM.id: module.CLAIM for module in MODULES}
"""All claims in the order in which ``make reproduce`` runs them, the fastest first."""


def get_claim(id: str) -> Claim:
    """Return the claim with the given id.

    Raises:
        ValueError: If no claim has this id. The message lists all ids and the most similar one.

    >>> from studies.liu2020 import get_claim
    >>> get_claim("theory").title
    'Lemmas, theorems and the two pictures'
    >>> get_claim("theorie")
    Traceback (most recent call last):
    ...
    ValueError: there is no claim 'theorie'; there are ...; did you mean theory?
    """
    if id not in CLAIMS:
        raise ValueError(f"there is no claim {id!r}; there are {', '.join(CLAIMS)}{suggest(id, CLAIMS)}")
    return CLAIMS[id]
