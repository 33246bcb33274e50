"""Claim: regularising the hyperspherical energy of neurons lowers the test error (tables 5.1, 5.7, 6.1; figure 6.2)."""

from ...config import Call, call
from ...data import CIFAR10, CIFAR100, ImbalancedSingle, TinyImageNet
from ...energy import MHE, CoMHE, Orthonormality
from ...energy.projections import AnglePreservingProjection, RandomProjection
from ...models import cnn6
from ...training import Config, CosineRate, Images, Selection, replace
from ..recipes.chapter5 import mhe_cifar10
from ..recipes.recipe_book import MIRROR, sgd
from .claim import Check, Claim, Published, Size, Tuning, rates
from .claim_pictures import curves

ALL = {"output": 1.0, "data_dependent": False}  # λ_o = 1 over all classes, in every experiment (D.1)
PENALTIES: dict[str, Call | None] = {
    "baseline": None,
    "orthonormal": call(Orthonormality, hidden=1e-5),
    "MHE s = 0": call(MHE, s=0.0, half_space=False, **ALL),
    "MHE s = 1": call(MHE, s=1.0, half_space=False, **ALL),
    "MHE s = 2": call(MHE, s=2.0, half_space=False, **ALL),
    "half-space MHE": call(MHE, **ALL),
    "RP-CoMHE": call(CoMHE, projection=call(RandomProjection), **ALL),
    "AP-CoMHE": call(CoMHE, projection=call(AnglePreservingProjection), **ALL),
}
REGULARISED = tuple(PENALTIES)[2:]
GROUPS = {
    "CIFAR-10": tuple(PENALTIES),
    "Tiny-ImageNet-32": ("baseline", "half-space MHE"),
    "imbalanced": ("baseline", "half-space MHE"),
}


def arms(size: Size) -> dict[str, Config]:
    """CNN-9 of table D.1 (CNN-6 at the small size) with each penalty on its hidden layers and on the classes."""
    if size == "paper":
        base = mhe_cifar10(size)
        sets = {"CIFAR-10": base, "Tiny-ImageNet-32": replace(base, data=call(CIFAR100))}
    else:
        base = Config(
            steps=600,
            evaluate_every=150,
            checkpoint_every=300,
            batch_size=64,
            images=Images(size=16),
            augment=MIRROR,
            model=call(cnn6, table="D.1", width=0.25),
            optimizer=sgd(0.1, 1e-4),
            schedule=call(CosineRate),
        )
        few, other = Selection(per_class=300, measured=5000), Selection(classes=50, per_class=200)
        sets = {
            "CIFAR-10": replace(base, data=call(CIFAR10), samples=few),
            "Tiny-ImageNet-32": replace(base, data=call(TinyImageNet), samples=other),
        }
    single = sets["CIFAR-10"].samples.replace(imbalance=call(ImbalancedSingle))
    sets["imbalanced"] = replace(sets["CIFAR-10"], samples=single)
    return {
        f"{group}/{name}": replace(sets[group], energy=PENALTIES[name])
        for group, names in GROUPS.items()
        for name in names
    }


CLAIM = Claim(
    id="mhe",
    title="Minimum hyperspherical energy as a regulariser",
    statement="MHE, its half-space form and its compressive forms lower the test error below the baseline and below orthonormality, the "
    "energy they reach is lower, and they help when a class is rare.",
    published=(
        Published(
            "5.1",
            "error (%) of CNN-9 on CIFAR-10 (CIFAR-100)",
            {
                "baseline": "7.75 (28.13)",
                "MHE s = 0": "6.44 (26.16)",
                "MHE s = 1": "6.74 (27.09)",
                "MHE s = 2": "6.22 (27.15)",
                "half-space MHE": "6.28 (25.61)",
            },
        ),
        Published(
            "6.1",
            "error (%) of CNN-9 on CIFAR-100",
            {
                "baseline": 28.03,
                "orthogonal": 27.01,
                "MHE s = 2": 26.75,
                "half-space MHE": 25.96,
                "RP-CoMHE": 24.39,
                "AP-CoMHE": 24.95,
            },
        ),
        Published(
            "5.7",
            "error (%) on CIFAR-10 with one rare class (of that class)",
            {"baseline": "9.80 (30.40)", "half-space MHE": "7.90 (26.40)"},
        ),
    ),
    differences=(
        "CNN-6 of table D.1 at a quarter of its width instead of CNN-9: few neurons in many dimensions, which start near least energy",
        "CIFAR-10 with 300 images a class, Tiny-ImageNet (50 classes, 200 images each, a stand-in for CIFAR-100), all at 16×16; measured "
        "on 5,000 and 2,500 test images",
        "600 steps of batch 64 with a cosine schedule instead of 42,500",
        "the learning rate of each arm is chosen on a tenth of the training set; the weights of the penalties are those of Liu (2020)",
    ),
    arms=arms,
    metrics={
        "error": "test error (%)",
        "worst_class_error": "error of the worst class (%)",
        "energy": "energy at the end (s = 2, hidden layers)",
    },
    checks=(
        *(
            Check(f"CIFAR-10, error: {name} below baseline", "error", f"CIFAR-10/{name}", "CIFAR-10/baseline", False)
            for name in REGULARISED
        ),
        Check(
            "CIFAR-10, error: half-space MHE below orthonormal",
            "error",
            "CIFAR-10/half-space MHE",
            "CIFAR-10/orthonormal",
            larger=False,
        ),
        *(
            Check(
                f"CIFAR-10, energy: {name} below baseline",
                "energy",
                f"CIFAR-10/{name}",
                "CIFAR-10/baseline",
                larger=False,
            )
            for name in ("MHE s = 2", "half-space MHE", "RP-CoMHE", "AP-CoMHE")
        ),
        Check(
            "Tiny-ImageNet, error: half-space MHE below baseline",
            "error",
            "Tiny-ImageNet-32/half-space MHE",
            "Tiny-ImageNet-32/baseline",
            larger=False,
        ),
        Check(
            "rare class, error: half-space MHE below baseline",
            "worst_class_error",
            "imbalanced/half-space MHE",
            "imbalanced/baseline",
            False,
        ),
    ),
    why="",
    picture=curves(
        [
            (
                "energy",
                "energy of hidden layers, CIFAR-10",
                [f"CIFAR-10/{n}" for n in PENALTIES if n not in ("MHE s = 0", "MHE s = 1")],
            ),
            (
                "accuracy",
                "test accuracy (%), CIFAR-10",
                [f"CIFAR-10/{n}" for n in PENALTIES if n not in ("MHE s = 0", "MHE s = 1")],
            ),
        ]
    ),
    caption="Hyperspherical energy and test accuracy over training, means over seeds.",
    tuning=Tuning(
        rates(1, 0.3),
        lambda config: replace(config, steps=200, evaluate_every=200, checkpoint_every=200),
    ),
)
