"""Part III: hyperspherical energy as a measure, a regulariser and a problem to solve."""

from .comhe import CoMHE
from .gram_penalties import SRIP, Orthogonality, Orthonormality, srip
from .hyperspherical import class_energy, hyperspherical_energy
from .kernels import AngularRiesz, Gaussian, Kernel, Riesz
from .layers import layer_energies
from .low_rank import LowRankBilateral, LowRankEnergy, low_rank_bilateral
from .mhe import MHE
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
    "SRIP",
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
    "Orthogonality",
    "Orthonormality",
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
    "layer_energies",
    "low_rank_bilateral",
    "maximum_separation",
    "minimize_energy",
    "nearest_pairs",
    "polarization",
    "refine_",
    "separation",
    "srip",
]
