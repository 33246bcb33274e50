"""Part III: hyperspherical energy as a measure, a regulariser and a problem to solve."""

from .comhe import CoMHE
from .hyperspherical import class_energy, hyperspherical_energy
from .mhe import MHE
from .projections import (
    AdversarialProjection,
    AnglePreservingProjection,
    BilateralProjection,
    ChannelGroups,
    CountSketch,
    HadamardProjection,
    Projection,
    RandomProjection,
)
from .regularizer import Penalty, Regularizer
from .solver import minimize_energy, refine_

__all__ = [
    "MHE",
    "AdversarialProjection",
    "AnglePreservingProjection",
    "BilateralProjection",
    "ChannelGroups",
    "CoMHE",
    "CountSketch",
    "HadamardProjection",
    "Penalty",
    "Projection",
    "RandomProjection",
    "Regularizer",
    "class_energy",
    "hyperspherical_energy",
    "minimize_energy",
    "refine_",
]
