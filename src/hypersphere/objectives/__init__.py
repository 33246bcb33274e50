"""Part I: learning objectives on the hypersphere, one family of softmax losses with margins."""

from . import comparisons, functional, heads, margins, strengths
from .annealing import Annealing
from .center import CenterLoss
from .head import MarginSoftmax
from .heads import (
    AdaCos,
    AdaFace,
    CurricularFace,
    ElasticFace,
    MagFace,
    MVSoftmax,
    PrototypeSoftmax,
    SphereFace2,
    SphereFaceR,
    UniFace,
    simplex_prototypes,
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
from .strengths import ByClass, ByCount, Drawn, Ramp, Stages
from .sub_centers import SubCenters, keep_dominant, outlying_samples, sub_centers_of

__all__ = [
    "AMSoftmax",
    "ASoftmax",
    "AdaCos",
    "AdaFace",
    "Annealing",
    "ArcFace",
    "ByClass",
    "ByCount",
    "CenterLoss",
    "CosFace",
    "CurricularFace",
    "Drawn",
    "ElasticFace",
    "GASoftmax",
    "Hinge",
    "LSoftmax",
    "MVSoftmax",
    "MagFace",
    "MarginSoftmax",
    "PrototypeSoftmax",
    "Ramp",
    "SSoftmax",
    "Softmax",
    "SphereFace",
    "SphereFace2",
    "SphereFaceR",
    "Stages",
    "SubCenters",
    "UniFace",
    "WSoftmax",
    "comparisons",
    "functional",
    "heads",
    "keep_dominant",
    "margins",
    "outlying_samples",
    "simplex_prototypes",
    "strengths",
    "sub_centers_of",
]
