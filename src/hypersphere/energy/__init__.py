"""Part III: hyperspherical energy as a measure, a regulariser and a problem to solve."""

from .comhe import CoMHE
from .hyperspherical import class_energy, hyperspherical_energy
from .kernels import AngularRiesz, Gaussian, Kernel, Riesz
from .low_rank import LowRankBilateral, LowRankEnergy, low_rank_bilateral
from .mhe import MHE
from .penalties import srip
from .point_energies import (
    alignment,
    covering,
    gaussian_uniformity,
    gram_log_determinant,
    maximum_separation,
    polarization,
)
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
from .uniformity import covering_radius, hole_moment, hole_radii, nearest_pairs, separation

__all__ = [
    "MHE",
    "AdversarialProjection",
    "AnglePreservingProjection",
    "AngularRiesz",
    "BilateralProjection",
    "ChannelGroups",
    "CoMHE",
    "CountSketch",
    "Gaussian",
    "HadamardProjection",
    "Kernel",
    "LowRankBilateral",
    "LowRankEnergy",
    "Penalty",
    "Projection",
    "RandomProjection",
    "Regularizer",
    "Riesz",
    "alignment",
    "class_energy",
    "covering",
    "covering_radius",
    "gaussian_uniformity",
    "gram_log_determinant",
    "hole_moment",
    "hole_radii",
    "hyperspherical_energy",
    "low_rank_bilateral",
    "maximum_separation",
    "minimize_energy",
    "nearest_pairs",
    "polarization",
    "refine_",
    "separation",
    "srip",
]
