"""Part I: learning objectives on the hypersphere, one family of softmax losses with margins."""

from . import comparisons, functional, margins
from .annealing import Annealing
from .center import CenterLoss
from .head import MarginSoftmax
from .presets import (
    AMSoftmax,
    ArcFace,
    ASoftmax,
    CosFace,
    GASoftmax,
    Hinge,
    LSoftmax,
    Softmax,
    SphereFace,
    SSoftmax,
    WSoftmax,
)

__all__ = [
    "AMSoftmax",
    "ASoftmax",
    "Annealing",
    "ArcFace",
    "CenterLoss",
    "CosFace",
    "GASoftmax",
    "Hinge",
    "LSoftmax",
    "MarginSoftmax",
    "SSoftmax",
    "Softmax",
    "SphereFace",
    "WSoftmax",
    "comparisons",
    "functional",
    "margins",
]
