"""Numbers and names as a page writes them."""

import math
from typing import Any

from ..training.results import get_unit

NAMES = {
    "loss": "loss",
    "lr": "learning rate",
    "lambda": "λ of the head",
    "eer": "equal error rate",
    "tar": "true accept rate",
    "rank1": "rank-1 identification",
    "one_shot": "one-shot accuracy",
    "accuracy": "accuracy",
    "balanced_accuracy": "mean accuracy of the classes",
    "worst_class_error": "error of the worst class",
    "auc": "area under the ROC curve",
    "angular_fisher": "angular Fisher score",
    "feature_norm": "length of the features",
    "feature_norm_std": "deviation of that length",
    "intra_angle": "angle within a class",
    "inter_angle": "angle between classes",
    "nearest_angle": "angle to the nearest other class",
}


def title(measure: str) -> str:
    """Return what a measure is called in words.

    >>> title("eer"), title("my_measure")
    ('equal error rate', 'my measure')
    """
    return NAMES.get(measure, measure.replace("_", " "))


def convert_unit(measure: str, value: float) -> float:
    """Return a value in the unit that it is shown in: angles are logged in radians and shown in degrees."""
    return math.degrees(value) if measure.endswith("_angle") else value


def suffix(measure: str) -> str:
    """Return the unit that a measure is shown in, with a space where one belongs.

    >>> suffix("accuracy"), suffix("intra_angle"), suffix("loss")
    (' %', '°', '')
    """
    return "°" if measure.endswith("_angle") else get_unit(measure)


def value(measure: str, number: Any) -> str:
    """Return a measured number with its unit.

    >>> value("accuracy", 97.25), value("inter_angle", math.pi / 2), value("loss", None)
    ('97.25 %', '90°', '–')
    """
    if not isinstance(number, int | float) or not math.isfinite(number):
        return "–"
    return f"{convert_unit(measure, number):.4g}{suffix(measure)}"


def text(anything: Any) -> str:
    """Return a setting as one reads it.

    >>> text(None), text(True), text(0.05), text([1, 2]), text("a")
    ('none', 'yes', '0.05', '1, 2', 'a')
    """
    if anything is None:
        return "none"
    if isinstance(anything, bool):
        return "yes" if anything else "no"
    if isinstance(anything, float):
        return f"{anything:.6g}"
    if isinstance(anything, int):
        return f"{anything:,}" if abs(anything) >= 10_000 else str(anything)
    if isinstance(anything, list | tuple):
        return ", ".join(text(item) for item in anything) or "none"
    if isinstance(anything, dict):
        return "; ".join(f"{key}: {text(item)}" for key, item in anything.items()) or "none"
    return str(anything)


def duration(seconds: float) -> str:
    """Return a time in the two units that say most.

    >>> duration(4.2), duration(75), duration(7300)
    ('4.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
