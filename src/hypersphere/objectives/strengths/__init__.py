"""Strengths: margins whose number m is not one constant, but by class, drawn per sample, or following a schedule."""

from ..margins.margin import Strength
from .by_class import ByClass, ByCount
from .drawn import Drawn
from .scheduled import Ramp, Stages

__all__ = ["ByClass", "ByCount", "Drawn", "Ramp", "Stages", "Strength"]
