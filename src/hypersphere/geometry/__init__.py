"""Angles and norms that never produce NaN: everything else in the library stands on these functions."""

from .angles import angle, arccos, arcsin, geodesic_distance, sine
from .gram import orthogonality, orthonormality
from .maps import exp_map, log_map, slerp, tangent
from .norms import cosine, inverse_norm, norm, normalize
from .polynomial import chebyshev
from .precision import accumulable, accumulation_dtype, full_precision
from .sampling import uniform
from .units import unit

__all__ = [
    "accumulable",
    "accumulation_dtype",
    "angle",
    "arccos",
    "arcsin",
    "chebyshev",
    "cosine",
    "exp_map",
    "full_precision",
    "geodesic_distance",
    "inverse_norm",
    "log_map",
    "norm",
    "normalize",
    "orthogonality",
    "orthonormality",
    "sine",
    "slerp",
    "tangent",
    "uniform",
    "unit",
]
