"""Projections of neurons for CoMHE."""

from .adversarial_projection import AdversarialProjection
from .angle_preserving import AnglePreservingProjection
from .bilateral import BilateralProjection
from .count_sketch import CountSketch
from .groups import ChannelGroups
from .hadamard import HadamardProjection
from .learned_projection import LearnedProjection
from .nonlinear_projection import NonlinearProjection
from .projection import Projection
from .random import RandomProjection

__all__ = [
    "AdversarialProjection",
    "AnglePreservingProjection",
    "BilateralProjection",
    "ChannelGroups",
    "CountSketch",
    "HadamardProjection",
    "LearnedProjection",
    "NonlinearProjection",
    "Projection",
    "RandomProjection",
]
