"""Losses over pairs of samples, and between samples and class proxies."""

from .alignment import Alignment
from .circle import Circle
from .contrastive import Contrastive
from .cross_batch import CrossBatchMemory
from .euclidean import EuclideanContrastive, EuclideanTriplet
from .hug import HUG
from .koleo import KoLeo
from .ntxent import NTXent
from .pair_loss import PairLoss, SummedPairLoss
from .proxies import Proxies
from .proxy import ProxyLoss
from .proxy_anchor import ProxyAnchor
from .siglip import SigLIP
from .soft_triple import SoftTriple
from .supcon import SupCon
from .triplet import Triplet
from .uniformity_loss import Uniformity

__all__ = [
    "HUG",
    "Alignment",
    "Circle",
    "Contrastive",
    "CrossBatchMemory",
    "EuclideanContrastive",
    "EuclideanTriplet",
    "KoLeo",
    "NTXent",
    "PairLoss",
    "Proxies",
    "ProxyAnchor",
    "ProxyLoss",
    "SigLIP",
    "SoftTriple",
    "SummedPairLoss",
    "SupCon",
    "Triplet",
    "Uniformity",
]
