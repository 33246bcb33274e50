"""Claim: regularizing the hyperspherical energy of neurons lowers the test error (tables 5.1–5.4, 6.1, E.4; figure 6.2)."""

from hypersphere.config import Call, call
from hypersphere.data import CIFAR100, TinyImageNet
from hypersphere.energy import MHE, SRIP, CoMHE, Orthonormality
from hypersphere.energy.projections import (
    AdversarialProjection,
    AnglePreservingProjection,
    ChannelGroups,
    RandomProjection,
)
from hypersphere.models import cnn9, cnn15
from hypersphere.recipes.chapter5 import mhe_cifar10
from hypersphere.recipes.recipe_book import make_sgd
from hypersphere.training import Selection, replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import make_curve_picture
from ..tuning import Tuning, divide_steps, make_rate_axis, make_weight_axis
from .small_images import SMALL_IMAGES

BOTH = {"hidden": 1.0, "output": 1.0, "data_dependent": False}  # λ_o = 1 over all classes, in every experiment (D.1)
PENALTIES: dict[str, Call | None] = {
    "baseline": None,
    "orthonormal": call(Orthonormality, hidden=1e-5, output=0.0),
    "SRIP": call(SRIP, hidden=1e-3, output=0.0),
    "MHE": call(MHE, half_space=False, **{**BOTH, "hidden": 10.0}),
    "half-space MHE": call(MHE, **BOTH),
    "half-space MHE, hidden only": call(MHE, **{**BOTH, "output": 0.0}),
    "MHE, classes only": call(MHE, **{**BOTH, "hidden": 0.0}),
    "RP-CoMHE": call(CoMHE, projection=call(RandomProjection), **BOTH),
    "RP-CoMHE (max)": call(CoMHE, projection=call(RandomProjection, reduce="max"), **BOTH),
    "RP-CoMHE, never redrawn": call(CoMHE, projection=call(RandomProjection, every=None), **BOTH),
    "AP-CoMHE": call(CoMHE, projection=call(AnglePreservingProjection), **BOTH),
    "G-CoMHE": call(CoMHE, projection=call(ChannelGroups), **BOTH),
    "Adv-CoMHE": call(CoMHE, projection=call(AdversarialProjection), **BOTH),
}
GROUPS = {
    "16/32/64": tuple(PENALTIES),
    "8/16/32": ("baseline", "half-space MHE"),
    "32/64/128": ("baseline", "half-space MHE"),
    "CNN-15": ("baseline", "half-space MHE"),
}
DRAWN = ("baseline", "orthonormal", "MHE", "half-space MHE", "RP-CoMHE")
ERRORS = {"MHE": 36.84, "half-space MHE": 35.16}  # table 5.2, 16/32/64; the baseline has 47.72
COMPRESSED = {"RP-CoMHE": 24.39, "RP-CoMHE (max)": 24.77, "AP-CoMHE": 24.33, "G-CoMHE": 25.08, "Adv-CoMHE": 25.09}


def make_arms(size: Size) -> dict[str, Arm]:
    """Return arms of CNN-9 (table D.1) at three widths and of CNN-15, with each penalty."""
    if size == "paper":
        base = replace(mhe_cifar10(size), data=call(CIFAR100), energy=None)
    else:
        base = replace(
            SMALL_IMAGES,
            steps=1200,
            evaluate_every=400,
            checkpoint_every=400,
            data=call(TinyImageNet),
            samples=Selection(classes=20),
            backbone=call(cnn9, table="D.1"),
            optimizer=make_sgd(0.05, 1e-4),
        )
    models = {
        "16/32/64": call(cnn9, table="D.1", width=0.25),
        "8/16/32": call(cnn9, table="D.1", width=0.125),
        "32/64/128": call(cnn9, table="D.1", width=0.5),
        "CNN-15": call(cnn15, table="D.1", width=0.25 if size == "laptop" else 1.0),
    }
    return {
        f"{group}/{name}": Training(replace(base, backbone=models[group], energy=PENALTIES[name]))
        for group, names in GROUPS.items()
        for name in names
    }


def _make_check(
    name: str, than: str = "baseline", group: str = "16/32/64", published: tuple[float, float] | None = None
) -> Check:
    title = f"{group}, error: {name} below {than}"
    return Check(title, "error", f"{group}/{name}", f"{group}/{than}", False, published=published)


CLAIM = Claim(
    id="mhe",
    title="Minimum hyperspherical energy as a regularizer",
    text=read_text("mhe"),
    published=(
        Published("5.2", "error (%) of CNN-9 with 16/32/64 filters on CIFAR-100", {"baseline": 47.72, **ERRORS}),
        Published("5.3", "error (%) of CNN-15 on CIFAR-100", {"baseline": "N/C", "half-space MHE": 25.84}),
        Published("5.4", "error (%), half-space MHE", {"hidden only": 26.28, "hidden and classes": 25.61, "classes only": 26.85}),
        Published("6.1", "error (%) of CNN-9", {"baseline": 28.03, "orthogonal": 27.01, "SRIP": 25.80, **COMPRESSED}),
        Published("E.4", "error (%) of RP-CoMHE", {"redrawn": 24.62, "never redrawn": 26.09}),
    ),
    arms=make_arms,
    about=("energy", "energy.*"),
    metrics={"error": "test error (%)", "energy": "energy at the end (s = 2, hidden layers)"},
    checks=(
        *(_make_check(name, published=(value, 47.72)) for name, value in ERRORS.items()),
        *(_make_check(name, published=(value, 28.03)) for name, value in COMPRESSED.items()),
        _make_check("half-space MHE", "orthonormal"),
        _make_check("half-space MHE", "SRIP"),
        _make_check("half-space MHE", "half-space MHE, hidden only", published=(25.61, 26.28)),
        _make_check("half-space MHE", "MHE, classes only", published=(25.61, 26.85)),
        _make_check("RP-CoMHE", "RP-CoMHE, never redrawn", published=(24.62, 26.09)),
        _make_check("half-space MHE", group="8/16/32"),
        _make_check("half-space MHE", group="32/64/128", published=(29.33, 38.64)),
        _make_check("half-space MHE", group="CNN-15"),
        *(
            Check(f"16/32/64, energy: {name} below baseline", "energy", f"16/32/64/{name}", "16/32/64/baseline", False)
            for name in ("MHE", "half-space MHE", "RP-CoMHE", "AP-CoMHE")
        ),
    ),
    picture=make_curve_picture(
        [
            ("energy", "energy of hidden layers", [f"16/32/64/{name}" for name in DRAWN]),
            ("accuracy", "test accuracy (%)", [f"16/32/64/{name}" for name in DRAWN]),
        ]
    ),
    caption="Hyperspherical energy and test accuracy over training, means over seeds.",
    tuning=Tuning((make_rate_axis(0.3, 1, 3), make_weight_axis(0.1, 1, 10)), divide_steps(4)),
)  # fmt: skip
