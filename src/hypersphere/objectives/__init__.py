"""Part I: learning objectives on the hypersphere, one family of softmax losses with margins."""

from . import comparisons, functional, margins, pairs
from .annealing import Annealing
from .center import CenterLoss
from .head import MarginSoftmax
from .pairs import (
    HUG,
    Alignment,
    Circle,
    Contrastive,
    KoLeo,
    NTXent,
    Proxies,
    ProxyAnchor,
    SigLIP,
    SoftTriple,
    SupCon,
    Triplet,
    Uniformity,
)
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
    "HUG",
    "AMSoftmax",
    "ASoftmax",
    "Alignment",
    "Annealing",
    "ArcFace",
    "CenterLoss",
    "Circle",
    "Contrastive",
    "CosFace",
    "GASoftmax",
    "Hinge",
    "KoLeo",
    "LSoftmax",
    "MarginSoftmax",
    "NTXent",
    "Proxies",
    "ProxyAnchor",
    "SSoftmax",
    "SigLIP",
    "SoftTriple",
    "Softmax",
    "SphereFace",
    "SupCon",
    "Triplet",
    "Uniformity",
    "WSoftmax",
    "comparisons",
    "functional",
    "margins",
    "pairs",
]
