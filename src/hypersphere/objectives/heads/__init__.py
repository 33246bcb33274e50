"""Heads published since Liu (2020): a margin, a comparison and a scale each."""

from .adacos import AdaCos
from .adaface import AdaFace
from .curricularface import CurricularFace
from .elasticface import ElasticFace
from .magface import MagFace
from .mv_softmax import MVSoftmax
from .prototypes import PrototypeSoftmax, simplex_prototypes
from .q_margin import QMargin
from .sphereface2 import SphereFace2
from .sphereface_r import SphereFaceR
from .uniface import UniFace
from .vmf_softmax import VMFSoftmax

__all__ = [
    "AdaCos",
    "AdaFace",
    "CurricularFace",
    "ElasticFace",
    "MVSoftmax",
    "MagFace",
    "PrototypeSoftmax",
    "QMargin",
    "SphereFace2",
    "SphereFaceR",
    "UniFace",
    "VMFSoftmax",
    "simplex_prototypes",
]
