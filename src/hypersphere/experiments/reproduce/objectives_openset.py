"""Claim: angular margins learn features that tell unseen classes apart (tables 2.8–2.10, 5.8)."""

from ...config import call
from ...objectives import AMSoftmax, ArcFace, ASoftmax, Softmax
from ...training import Config, replace
from ..recipes.chapter2 import SPHEREFACE_LAMBDA, open_set
from ..recipes.chapter5 import SPHEREFACE_PLUS
from .claim import Check, Claim, Published, Size
from .claim_pictures import bars

MARGINS = (1, 2, 3, 4)
HEADS = {
    "softmax": call(Softmax),
    **{f"A-Softmax m = {m}": call(ASoftmax, m=m, annealing=SPHEREFACE_LAMBDA) for m in MARGINS},
    **{f"SphereFace+ m = {m}": call(ASoftmax, m=m, annealing=SPHEREFACE_LAMBDA) for m in MARGINS},
    "AM-Softmax": call(AMSoftmax, m=0.2, scale=20.0),
    "ArcFace": call(ArcFace, m=0.25, scale=20.0),
}


def base(size: Size) -> Config:
    """The setting every head shares: a narrow SphereFace-4, or SphereFace-20 with the schedule of table 5.8.

    The faces of Liu (2020) cannot be had: at both sizes characters stand in for them.
    """
    return replace(open_set(size, HEADS["softmax"]), checkpoint_every=500)


def arms(size: Size) -> dict[str, Config]:
    """One head each; SphereFace+ adds the data-dependent energy of the classes (5.8)."""
    found = {name: replace(base(size), head=head) for name, head in HEADS.items()}
    plus = {name: replace(config, energy=SPHEREFACE_PLUS) for name, config in found.items() if "SphereFace+" in name}
    return found | plus


CLAIM = Claim(
    id="objectives-openset",
    title="Angular margins on unseen classes",
    statement="A-Softmax verifies and identifies unseen classes better than softmax, gains with m, and gains from the energy of the "
    "classes (SphereFace+).",
    published=(
        Published(
            "2.8",
            "verification accuracy (%) on LFW",
            {
                "softmax": 97.88,
                "A-Softmax m = 1": 97.90,
                "A-Softmax m = 2": 98.40,
                "A-Softmax m = 3": 99.25,
                "A-Softmax m = 4": 99.42,
            },
        ),
        Published(
            "2.10",
            "MegaFace rank-1 (%), and TAR (%) at FAR 1e-6",
            {"softmax": "54.855, 65.925", "A-Softmax m = 4": "72.729, 85.561"},
        ),
        Published(
            "5.8",
            "MegaFace rank-1 (%), SphereFace-20",
            {
                "A-Softmax m = 1": 39.12,
                "A-Softmax m = 2": 60.48,
                "A-Softmax m = 3": 63.71,
                "A-Softmax m = 4": 70.68,
                "SphereFace+ m = 4": 71.30,
            },
        ),
    ),
    differences=(
        "characters instead of faces: 964 Omniglot characters to train on, 659 unseen ones to measure",
        "a narrow network of four layers and some epochs",
        "false-accept rate 1e-3 instead of 1e-6, no distractors from outside",
        "AM-Softmax and ArcFace are not in these tables; they are measured for comparison",
    ),
    arms=arms,
    metrics={"eer": "EER (%)", "tar": "TAR at FAR 1e-3 (%)", "rank1": "rank-1 (%)", "one_shot": "20-way 1-shot (%)"},
    checks=(
        Check("EER: A-Softmax m = 4 below softmax", "eer", "A-Softmax m = 4", "softmax", larger=False),
        Check("TAR: A-Softmax m = 4 above softmax", "tar", "A-Softmax m = 4", "softmax"),
        Check("rank-1: A-Softmax m = 4 above softmax", "rank1", "A-Softmax m = 4", "softmax"),
        Check("TAR: A-Softmax m = 2 above m = 1", "tar", "A-Softmax m = 2", "A-Softmax m = 1"),
        Check("TAR: A-Softmax m = 3 above m = 2", "tar", "A-Softmax m = 3", "A-Softmax m = 2"),
        Check("TAR: A-Softmax m = 4 above m = 3", "tar", "A-Softmax m = 4", "A-Softmax m = 3"),
        *(
            Check(f"TAR: SphereFace+ above A-Softmax, m = {m}", "tar", f"SphereFace+ m = {m}", f"A-Softmax m = {m}")
            for m in MARGINS
        ),
        *(
            Check(
                f"rank-1: SphereFace+ above A-Softmax, m = {m}", "rank1", f"SphereFace+ m = {m}", f"A-Softmax m = {m}"
            )
            for m in MARGINS
        ),
    ),
    why="",
    picture=bars([("tar", "TAR at FAR 1e-3 (%)"), ("rank1", "rank-1 (%)")]),
    caption="Verification and identification of unseen characters, means over seeds with their standard errors.",
)
