"""Names of measures, and the format of numbers, settings and times on a page."""

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


def name_measure(measure: str) -> str:
    """Return the name of a measure in words.

    >>> name_measure("eer"), name_measure("my_measure")
    ('equal error rate', 'my measure')
    """
    return NAMES.get(measure, measure.replace("_", " "))


def convert_unit(measure: str, value: float) -> float:
    """Return a value in the unit of the page: angles are logged in radians and shown in degrees."""
    return math.degrees(value) if measure.endswith("_angle") else value


def get_suffix(measure: str) -> str:
    """Return the unit of a measure on the page, with a leading space if it needs one.

    >>> get_suffix("accuracy"), get_suffix("intra_angle"), get_suffix("loss")
    (' %', '°', '')
    """
    return "°" if measure.endswith("_angle") else get_unit(measure)


def format_value(measure: str, number: Any) -> str:
    """Return a measured number with its unit.

    >>> format_value("accuracy", 97.25), format_value("inter_angle", math.pi / 2), format_value("loss", None)
    ('97.25 %', '90°', '–')
    """
    if not isinstance(number, int | float) or not math.isfinite(number):
        return "–"
    return f"{convert_unit(measure, number):.4g}{get_suffix(measure)}"


def format_setting(anything: Any) -> str:
    """Return a setting as text.

    >>> format_setting(None), format_setting(True), format_setting(0.05), format_setting([1, 2]), format_setting("a")
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
        return ", ".join(format_setting(item) for item in anything) or "none"
    if isinstance(anything, dict):
        return "; ".join(f"{key}: {format_setting(item)}" for key, item in anything.items()) or "none"
    return str(anything)


def format_duration(seconds: float) -> str:
    """Return a time in its one or two largest units.

    >>> format_duration(4.2), format_duration(75), format_duration(7300)
    ('4.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
