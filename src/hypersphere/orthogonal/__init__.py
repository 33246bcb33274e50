"""Orthogonal over-parameterized training (Part IV): neurons w_i = R v_i with v fixed and R orthogonal and learned."""

from .coverage import Coverage, coverage
from .initial_neurons import Refinement, prepare_neurons
from .maps import METHODS, Map
from .maps.base import Free
from .maps.cayley import Cayley, cayley
from .maps.exponential import Exponential, exponential
from .maps.gram_schmidt import GramSchmidt, gram_schmidt
from .maps.householder import Householder, householder
from .maps.lowdin import Lowdin, lowdin
from .maps.newton_schulz import newton_schulz
from .maps.structured import Banded, Hessenberg, Skew, Symmetric, SymmetricPositive, Triangular
from .measures import orthogonality_error, orthogonality_penalty, trainable_parameters
from .merge import merge
from .multitask import add_task, use_task
from .ogd import OGD, ParamGroups, param_groups
from .overparameterize import overparameterize
from .penalty import OrthogonalityPenalty

__all__ = [
    "METHODS",
    "OGD",
    "Banded",
    "Cayley",
    "Coverage",
    "Exponential",
    "Free",
    "GramSchmidt",
    "Hessenberg",
    "Householder",
    "Lowdin",
    "Map",
    "OrthogonalityPenalty",
    "ParamGroups",
    "Refinement",
    "Skew",
    "Symmetric",
    "SymmetricPositive",
    "Triangular",
    "add_task",
    "cayley",
    "coverage",
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
    "prepare_neurons",
    "trainable_parameters",
    "use_task",
]
