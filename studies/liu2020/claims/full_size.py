"""Claim: comparisons that other claims make on small images come out the same way on the images as they are."""

import dataclasses

from hypersphere.training import replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import curves
from ..tuning import Tuning, rates, weights
from . import decoupled, imbalance, mhe, opt, spherenet

# One comparison of each claim that has pictures of half their size, and the table it is from: those whose effect is large there.
COMPARED = (
    ("3.1", spherenet.CLAIM, "softmax/cosine", "softmax/convolution"),
    ("3.3", spherenet.CLAIM, "no ReLU/cosine", "no ReLU/convolution"),
    ("4.3", decoupled.CLAIM, "BN, ReLU/TanhConv", "BN, ReLU/convolution"),
    ("5.2", mhe.CLAIM, "16/32/64/half-space MHE", "16/32/64/baseline"),
    ("5.7", imbalance.CLAIM, "CIFAR-10 single/half-space MHE", "CIFAR-10 single/baseline"),
    ("7.4", opt.CLAIM, "CNN-6/OPT (GS)", "CNN-6/baseline"),
)


def arms(size: Size) -> dict[str, Arm]:
    """Both sides of each comparison with everything as in its own claim, but for the size of the images."""
    found: dict[str, Arm] = {}
    for _, claim, *names in COMPARED:
        there = claim.sized(size)
        for name in reversed(names):
            arm = there[name]
            assert isinstance(arm, Training)
            found[f"{claim.id}: {name}"] = arm.with_config(replace(arm.config, size=None))
    return found


def checks() -> tuple[Check, ...]:
    """Those of the claims between the compared arms."""
    return tuple(
        dataclasses.replace(
            check, name=f"{claim.id}: {check.name}", arm=f"{claim.id}: {name}", than=f"{claim.id}: {than}"
        )
        for _, claim, name, than in COMPARED
        for check in claim.checks
        if (check.arm, check.than) == (name, than)
    )


def _published(table: str, claim: Claim, name: str, than: str) -> Published:
    """What the text prints for a comparison, by its check."""
    check = next(c for c in claim.checks if (c.arm, c.than) == (name, than) and c.published is not None)
    assert check.published is not None
    values = {
        side.rpartition("/")[2]: value for side, value in zip((than, name), reversed(check.published), strict=True)
    }
    return Published(table, f"{claim.metrics[check.metric]}, {name.rpartition('/')[0]}", values)


def _metrics() -> dict[str, str]:
    """What is checked, and the accuracy, with the names the claims give them."""
    shown = {"accuracy", *(check.metric for check in checks())}
    names = {key: label for _, claim, *_ in COMPARED for key, label in claim.metrics.items() if key in shown}
    return {**names, "accuracy": "test accuracy (%)", "early": "accuracy at the first evaluation (%)"}


CLAIM = Claim(
    id="full-size",
    title="The same comparisons at full size",
    text=read_text("full-size"),
    published=tuple(_published(*compared) for compared in COMPARED),
    arms=arms,
    about=tuple(dict.fromkeys(pattern for _, claim, *_ in COMPARED for pattern in claim.about)),
    metrics=_metrics(),
    checks=checks(),
    picture=curves(
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
    tuning=Tuning((rates(0.3, 1, 3), weights(0.1, 1, 10))),
)
