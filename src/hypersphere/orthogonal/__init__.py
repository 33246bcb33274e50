"""Orthogonal over-parameterized training (Part IV): neurons w_i = R v_i with v fixed and R orthogonal, learned, merged at the end."""

from .maps import METHODS, Map
from .maps.base import Free
from .maps.cayley import Cayley, cayley
from .maps.exponential import Exponential, exponential
from .maps.gram_schmidt import GramSchmidt, gram_schmidt
from .maps.householder import Householder, householder
from .maps.lowdin import Lowdin, lowdin
from .maps.newton_schulz import newton_schulz
from .maps.structured import Banded, SymmetricPositive, Triangular
from .measures import orthogonality_error, orthogonality_penalty, trainable_parameters
from .merge import merge
from .multitask import add_task, use_task
from .ogd import OGD, ParamGroups, param_groups
from .overparameterize import overparameterize

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
