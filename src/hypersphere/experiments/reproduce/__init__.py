"""The claims of Liu (2020), tested on real data at a size a small machine can run: ``hypersphere reproduce ID``."""

from ...config import nearest
from . import mhe_claim as mhe
from . import objectives_mnist, objectives_openset, opt, spherenet
from .claim import SIZES, Check, Claim, Estimate, Published, Size, Tuning, rates, verdict
from .runner import reproduce

CLAIMS: dict[str, Claim] = {
    module.CLAIM.id: module.CLAIM for module in (objectives_mnist, objectives_openset, spherenet, mhe, opt)
}


def get(id: str) -> Claim:
    """The claim of an id; an unknown one is an error that lists those there are and the nearest."""
    if id not in CLAIMS:
        raise ValueError(f"there is no claim {id!r}; there are {', '.join(CLAIMS)}{nearest(id, CLAIMS)}")
    return CLAIMS[id]


__all__ = [
    "CLAIMS",
    "SIZES",
    "Check",
    "Claim",
    "Estimate",
    "Published",
    "Size",
    "Tuning",
    "get",
    "rates",
    "reproduce",
    "verdict",
]
