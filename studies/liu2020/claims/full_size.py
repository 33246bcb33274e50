"""Claim: comparisons of other claims have the same result on images of full size."""

import dataclasses

from hypersphere.training import replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import make_curve_picture
from ..tuning import Tuning, make_rate_axis, make_weight_axis
from . import decoupled, imbalance, mhe, opt, spherenet

# One comparison of each claim with images of half size, with its table: those with a large published effect.
COMPARED = (
    ("3.1", spherenet.CLAIM, "softmax/cosine", "softmax/convolution"),
    ("3.3", spherenet.CLAIM, "no ReLU/cosine", "no ReLU/convolution"),
    ("4.3", decoupled.CLAIM, "BN, ReLU/TanhConv", "BN, ReLU/convolution"),
    ("5.2", mhe.CLAIM, "16/32/64/half-space MHE", "16/32/64/baseline"),
    ("5.7", imbalance.CLAIM, "CIFAR-10 single/half-space MHE", "CIFAR-10 single/baseline"),
    ("7.4", opt.CLAIM, "CNN-6/OPT (GS)", "CNN-6/baseline"),
)


def make_arms(size: Size) -> dict[str, Arm]:
    """Return both arms of each comparison, with the settings of their claim except the size of the images."""
    arms: dict[str, Arm] = {}
    for _, claim, *names in COMPARED:
        there = claim.get_arms(size)
        for name in reversed(names):
            arm = there[name]
            assert isinstance(arm, Training)
            arms[f"{claim.id}: {name}"] = arm.with_config(replace(arm.config, size=None))
    return arms


def make_checks() -> tuple[Check, ...]:
    """Return the checks of the claims between the compared arms."""
    return tuple(
        dataclasses.replace(
            check, name=f"{claim.id}: {check.name}", arm=f"{claim.id}: {name}", than=f"{claim.id}: {than}"
        )
        for _, claim, name, than in COMPARED
        for check in claim.checks
        if (check.arm, check.than) == (name, than)
    )


def _get_published(table: str, claim: Claim, name: str, than: str) -> Published:
    """Return the published values of a comparison."""
    check = next(c for c in claim.checks if (c.arm, c.than) == (name, than) and c.published is not None)
    assert check.published is not None
    values = {
        side.rpartition("/")[2]: value for side, value in zip((than, name), reversed(check.published), strict=True)
    }
    return Published(table, f"{claim.metrics[check.metric]}, {name.rpartition('/')[0]}", values)


def _name_metrics() -> dict[str, str]:
    """Return the labels of all checked metrics and of the accuracy."""
    shown = {"accuracy", *(check.metric for check in make_checks())}
    names = {key: label for _, claim, *_ in COMPARED for key, label in claim.metrics.items() if key in shown}
    return {**names, "accuracy": "test accuracy (%)", "early": "accuracy at the first evaluation (%)"}


CLAIM = Claim(
    id="full-size",
    title="The same comparisons at full size",
    text=read_text("full-size"),
    published=tuple(_get_published(*compared) for compared in COMPARED),
    arms=make_arms,
    about=tuple(dict.fromkeys(pattern for _, claim, *_ in COMPARED for pattern in claim.about)),
    metrics=_name_metrics(),
    checks=make_checks(),
    picture=make_curve_picture(
        [
            ("accuracy", f"test accuracy (%), {group}", [f"{group}/{name}" for name in names])
            for group, names in (
                ("spherenet: softmax", ("convolution", "cosine")),
                ("spherenet: no ReLU", ("convolution", "cosine")),
                ("decoupled: BN, ReLU", ("convolution", "TanhConv")),
            )
        ]
    ),
    caption="Test accuracy over training on images of 32×32, means over seeds.",
    tuning=Tuning((make_rate_axis(0.3, 1, 3), make_weight_axis(0.1, 1, 10))),
)
