"""Part III: hyperspherical energy as a measure, as a regularizer and as a minimization problem."""

from .checkpoint_files import Checkpoint
from .checkpoint_report import LayerChange, LayerReport, energy_changes, energy_report
from .class_prototypes import place_prototypes
from .comhe import CoMHE
from .feature_energy import FeatureEnergy, GlobalOrthogonalRegularization, global_orthogonal_regularization
from .gram_penalties import SRIP, Orthogonality, Orthonormality, srip
from .holes import cap_constant, covering_radius, expected_hole_moment, facet_constant, hole_moment, hole_radii
from .hyperspherical import class_energy, hyperspherical_energy
from .kernels import AngularRiesz, Gaussian, Kernel, Riesz
from .low_rank import LowRankBilateral, LowRankEnergy, low_rank_bilateral
from .mhe import MHE, layer_energies
from .neighbors import nearest_pairs, separation
from .projections import (
    AdversarialProjection,
    AnglePreservingProjection,
    BilateralProjection,
    ChannelGroups,
    CountSketch,
    HadamardProjection,
    LearnedProjection,
    NonlinearProjection,
    Projection,
    RandomProjection,
)
from .reference_energies import energy_lower_bound, random_energy
from .regularizer import NoLayersError, Penalty, Regularizer
from .solver import minimize_energy, refine_
from .trajectories import weighted_trajectories
from .uniformity_measures import (
    alignment,
    gram_log_determinant,
    kernel_discrepancy,
    maximum_separation,
    polarization,
    uniformity,
)
from .zonal_kernels import MMD, Heat, KernelStein

__all__ = [
    "MHE",
    "MMD",
    "SRIP",
    "AdversarialProjection",
    "AnglePreservingProjection",
    "AngularRiesz",
    "BilateralProjection",
    "ChannelGroups",
    "Checkpoint",
    "CoMHE",
    "CountSketch",
    "FeatureEnergy",
    "Gaussian",
    "GlobalOrthogonalRegularization",
    "HadamardProjection",
    "Heat",
    "Kernel",
    "KernelStein",
    "LayerChange",
    "LayerReport",
    "LearnedProjection",
    "LowRankBilateral",
    "LowRankEnergy",
    "NoLayersError",
    "NonlinearProjection",
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
    "covering_radius",
    "energy_changes",
    "energy_lower_bound",
    "energy_report",
    "expected_hole_moment",
    "facet_constant",
    "global_orthogonal_regularization",
    "gram_log_determinant",
    "hole_moment",
    "hole_radii",
    "hyperspherical_energy",
    "kernel_discrepancy",
    "layer_energies",
    "low_rank_bilateral",
    "maximum_separation",
    "minimize_energy",
    "nearest_pairs",
    "place_prototypes",
    "polarization",
    "random_energy",
    "refine_",
    "separation",
    "srip",
    "uniformity",
    "weighted_trajectories",
]
