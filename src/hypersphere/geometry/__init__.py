"""Angles, norms and other functions on the sphere, which are accurate for all finite inputs and used by all packages."""

from .angles import angle, arccos, arcsin, geodesic_distance, sine
from .bessel import log_mean_exponential, mean_length
from .distributions import PowerSpherical, VonMisesFisher
from .fast_norms import normalize_rows
from .gram import orthogonality, orthonormality
from .maps import exp_map, log_map, slerp, tangent
from .norms import cosine, inverse_norm, norm, normalize
from .numerics import accumulation_dtype, disable_autocast, upcast
from .polynomial import chebyshev
from .products import faster_convolutions, matmul
from .sampling import uniform

__all__ = [
    "PowerSpherical",
    "VonMisesFisher",
    "accumulation_dtype",
    "angle",
    "arccos",
    "arcsin",
    "chebyshev",
    "cosine",
    "disable_autocast",
    "exp_map",
    "faster_convolutions",
    "geodesic_distance",
    "inverse_norm",
    "log_map",
    "log_mean_exponential",
    "matmul",
    "mean_length",
    "norm",
    "normalize",
    "normalize_rows",
    "orthogonality",
    "orthonormality",
    "sine",
    "slerp",
    "tangent",
    "uniform",
    "upcast",
]
