"""Margins: what a head does to the angle between a feature and its own class."""

from .additive import AdditiveAngle, AdditiveCosine
from .base import Context, Margin, NoMargin, Strength
from .combined import Combined
from .multiplicative import Multiplicative

__all__ = ["AdditiveAngle", "AdditiveCosine", "Combined", "Context", "Margin", "Multiplicative", "NoMargin", "Strength"]
