"""Margins: functions of the angle between a feature and its own class, and of the angles to the other classes."""

from .additive import AdditiveAngle, AdditiveCosine
from .characteristic import Clipped, Shrunk
from .combined import Combined
from .concentration import Concentration
from .hard import Curricular, InterTopK, Misclassified
from .margin import Context, Margin, NoMargin, Strength
from .multiplicative import Multiplicative
from .quality import MagnitudeAware, QualityAdaptive
from .two_sided import TwoSided

__all__ = [
    "AdditiveAngle",
    "AdditiveCosine",
    "Clipped",
    "Combined",
    "Concentration",
    "Context",
    "Curricular",
    "InterTopK",
    "MagnitudeAware",
    "Margin",
    "Misclassified",
    "Multiplicative",
    "NoMargin",
    "QualityAdaptive",
    "Shrunk",
    "Strength",
    "TwoSided",
]
