"""Orthogonal over-parameterized training (Part IV): neurons w_i = R v_i with v fixed and R orthogonal, learned, merged at the end."""

from .maps import (
    METHODS,
    Banded,
    Cayley,
    Exponential,
    Free,
    GramSchmidt,
    Householder,
    Lowdin,
    Map,
    SymmetricPositive,
    Triangular,
    cayley,
    exponential,
    gram_schmidt,
    householder,
    lowdin,
    newton_schulz,
)
from .measures import orthogonality_error, orthogonality_penalty, trainable_parameters
from .merge import merge
from .ogd import OGD, ParamGroups, param_groups
from .overparameterize import overparameterize
from .tasks import add_task, use_task

__all__ = [
    "METHODS",
    "OGD",
    "Banded",
    "Cayley",
    "Exponential",
    "Free",
    "GramSchmidt",
    "Householder",
    "Lowdin",
    "Map",
    "ParamGroups",
    "SymmetricPositive",
    "Triangular",
    "add_task",
    "cayley",
    "exponential",
    "gram_schmidt",
    "householder",
    "lowdin",
    "merge",
    "newton_schulz",
    "orthogonality_error",
    "orthogonality_penalty",
    "overparameterize",
    "param_groups",
    "trainable_parameters",
    "use_task",
]
