"""Part III: hyperspherical energy as a measure, a regulariser and a problem to solve."""

from .comhe import CoMHE
from .cover import covering_radius
from .discrepancy import kernel_discrepancy
from .gram_penalties import SRIP, Orthogonality, Orthonormality, srip
from .holes import cap_constant, expected_hole_moment, facet_constant, hole_moment, hole_radii
from .hyperspherical import class_energy, hyperspherical_energy
from .kernels import AngularRiesz, Gaussian, Kernel, Riesz
from .layers import layer_energies
from .least import least_energy
from .low_rank import LowRankBilateral, LowRankEnergy, low_rank_bilateral
from .mhe import MHE
from .nearest import nearest_pairs, separation
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
from .trajectories import weighted_trajectories

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
    "cap_constant",
    "class_energy",
    "covering",
    "covering_radius",
    "expected_hole_moment",
    "facet_constant",
    "gaussian_uniformity",
    "gram_log_determinant",
    "hole_moment",
    "hole_radii",
    "hyperspherical_energy",
    "kernel_discrepancy",
    "layer_energies",
    "least_energy",
    "low_rank_bilateral",
    "maximum_separation",
    "minimize_energy",
    "nearest_pairs",
    "polarization",
    "refine_",
    "separation",
    "srip",
    "weighted_trajectories",
]
