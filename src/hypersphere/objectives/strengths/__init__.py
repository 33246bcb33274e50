"""Strengths: values of a margin m that depend on the class, are random for each sample, or follow a schedule."""

from ..margins.margin import Strength
from .by_class import ByClass, ByCount
from .drawn import Drawn
from .scheduled import Ramp, Stages

__all__ = ["ByClass", "ByCount", "Drawn", "Ramp", "Stages", "Strength"]
