"""Claim: decoupled operators are better than the convolution, with and without ReLU and BN (tables 4.1–4.4; figure 3.5)."""

from typing import Any

from hypersphere.angular import Cosine, SquareCosine
from hypersphere.config import Call, call
from hypersphere.data import CIFAR100, TinyImageNet
from hypersphere.models import cnn9
from hypersphere.operators import Operator, magnitudes
from hypersphere.recipes.chapter4 import dcnet_cifar100
from hypersphere.recipes.recipe_book import make_adam, make_sgd
from hypersphere.training import Config, Selection, replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import make_curve_picture
from ..tuning import Tuning, make_rate_axis
from .small_images import SMALL_IMAGES

MAGNITUDES: dict[str, Any] = {
    "SphereConv": call(magnitudes.Sphere),
    "BallConv": call(magnitudes.Ball),
    "TanhConv": call(magnitudes.Tanh),
    "LinearConv": call(magnitudes.Linear),
    "SegConv": call(magnitudes.Seg),
    "LogConv": call(magnitudes.Log),
    "MixConv": call(magnitudes.Mix),
}
# Table 4.3, cosine with ReLU and square cosine without; table 4.2, cosine without batch normalization.
WITH = dict(zip(MAGNITUDES, (26.00, 25.18, 25.15, 24.81, 24.96, 25.17, 25.27), strict=True))
WITHOUT = dict(zip(MAGNITUDES, (25.90, 25.43, 25.27, 24.36, 24.29, 24.91, 24.93), strict=True))
PLAIN = {"LinearConv": 31.76, "TanhConv": 31.88, "SegConv": 30.34}
BASELINES = {"BN, ReLU": 26.01, "no ReLU": 58.24, "no BN": 35.30}
PUBLISHED = {"BN, ReLU": WITH, "no ReLU": WITHOUT, "no BN": PLAIN}
TRICKS: dict[str, tuple[dict[str, Any], float]] = {
    "projected": ({"project_every": 10}, 21.17),
    "weighted gradients": ({"weighted_gradients": True}, 21.45),
}
# Table 4.1: forms of ‖w‖ in TanhConv; the operator without it has 23.09.
WEIGHTED = {"linear": 22.95, "tanh_product": 23.03, "product_of_tanh": 23.38}
BATCHES = {4: 4, 16: 2, 64: 1}  # batch size → factor of the number of steps


def make_arms(size: Size) -> dict[str, Arm]:
    """Return arms of CNN-9 (table C.1): each magnitude, two tricks of optimization, SphereNorm and BatchNorm at small batches."""
    base = replace(
        _make_base_config(size), project_every=0
    )  # projection, which the recipe uses, is one of the tricks here
    groups: dict[str, tuple[dict[str, Any], Call]] = {
        "BN, ReLU": ({}, call(Cosine)),
        "no ReLU": ({"backbone.activation": "none"}, call(SquareCosine)),
        "no BN": ({"backbone.norm": "none"}, call(Cosine)),
    }
    arms: dict[str, Config] = {}
    for group, (changes, angular) in groups.items():
        arms[f"{group}/convolution"] = replace(base, **changes)
        for name in PUBLISHED[group]:
            operator = call(Operator, magnitude=MAGNITUDES[name], angular=angular)
            arms[f"{group}/{name}"] = replace(base, {"backbone.operator": operator}, **changes)
    for name, (changes, _) in TRICKS.items():
        if size == "paper" and "project_every" in changes:
            changes = {"project_every": 100}
        arms[f"BN, ReLU/TanhConv, {name}"] = replace(arms["BN, ReLU/TanhConv"], **changes)
    for form in WEIGHTED:
        arms[f"BN, ReLU/TanhConv, weighted {form}"] = replace(
            arms["BN, ReLU/TanhConv"], {"backbone.operator.magnitude.weighted": form}
        )
    for name in ("convolution", "TanhConv"):  # C.6
        arms[f"SGD/{name}"] = replace(
            arms[f"BN, ReLU/{name}"], optimizer=make_sgd(0.1 if size == "paper" else 0.05, 0.0)
        )
    for batch, times in BATCHES.items():
        longer = {} if size == "paper" else {"steps": times * base.steps, "evaluate_every": times * base.evaluate_every}
        for name, norm in (("BatchNorm", "batch"), ("SphereNorm", "sphere")):
            arms[f"batch {batch}/{name}"] = replace(base, {"backbone.norm": norm}, batch_size=batch, **longer)
    return {name: Training(config) for name, config in arms.items()}


def _make_base_config(size: Size) -> Config:
    if size == "paper":
        return replace(dcnet_cifar100(size), {"backbone.operator": None}, data=call(CIFAR100), energy=None)
    return replace(
        SMALL_IMAGES,
        steps=800,
        evaluate_every=200,
        checkpoint_every=400,
        data=call(TinyImageNet),
        samples=Selection(classes=20, per_class=200),
        backbone=call(cnn9, table="C.1", width=0.25),
        optimizer=make_adam(0.001),
    )


def _make_check(group: str, name: str) -> Check:
    published = PUBLISHED[group][name], BASELINES[group]
    title = f"{group}, error: {name} below the convolution"
    return Check(title, "error", f"{group}/{name}", f"{group}/convolution", False, published=published)


CLAIM = Claim(
    id="decoupled",
    title="Decoupled operators",
    text=read_text("decoupled"),
    published=(
        Published("4.3", "error (%) of CNN-9 on CIFAR-100, cosine", {"convolution": 26.01, **WITH}),
        Published("4.3", "error (%) without ReLU, square cosine", {"convolution": 58.24, **WITHOUT}),
        Published("4.2", "error (%) without BN, cosine", {"convolution": 35.30, **PLAIN}),
        Published("4.1", "error (%) of TanhConv", {"standard gradients": 23.09, "weight projection": 21.17, "weighted gradients": 21.45}),
        Published("4.1", "error (%) of weighted TanhConv", WEIGHTED),
        Published("figure 3.5", "SphereNorm at small batches", {"SphereNorm": "final accuracy similar to BatchNorm, sooner"}),
    ),
    arms=make_arms,
    about=("backbone.operator", "backbone.operator.*", "project_every", "weighted_gradients", "backbone.norm"),
    metrics={"error": "test error (%)", "early": "accuracy after a quarter of the steps (%)"},
    checks=(
        *(_make_check(group, name) for group, values in PUBLISHED.items() for name in values),
        *(
            Check(
                f"BN, ReLU, error: TanhConv, {name} below standard gradients",
                "error",
                f"BN, ReLU/TanhConv, {name}",
                "BN, ReLU/TanhConv",
                False,
                published=(value, 23.09),
            )
            for name, (_, value) in TRICKS.items()
        ),
        *(
            Check(
                f"BN, ReLU, error: TanhConv, weighted {form} no worse than without",
                "error",
                f"BN, ReLU/TanhConv, weighted {form}",
                "BN, ReLU/TanhConv",
                False,
                True,
            )
            for form in WEIGHTED
        ),
        Check("SGD, error: TanhConv below the convolution", "error", "SGD/TanhConv", "SGD/convolution", False),
        *(
            Check(f"batch {n}, early: SphereNorm above BatchNorm", "early", f"{group}/SphereNorm", f"{group}/BatchNorm")
            for n, group in ((n, f"batch {n}") for n in BATCHES)
        ),
    ),
    picture=make_curve_picture(
        [
            ("accuracy", f"test accuracy (%), {group}", [f"{group}/{n}" for n in ("convolution", *values)])
            for group, values in PUBLISHED.items()
        ]
    ),
    caption="Test accuracy over training, means over seeds.",
    seeds=5,
    fewer=dict.fromkeys(("BN, ReLU/TanhConv, *", "no *", "SGD/*", "batch *"), 3),
    tuning=Tuning((make_rate_axis(0.3, 1, 3),)),
)  # fmt: skip
