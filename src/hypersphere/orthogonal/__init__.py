"""Orthogonal over-parameterized training (Part IV): neurons w_i = R v_i with v fixed and R orthogonal and learned."""

from .coverage import Coverage, coverage
from .initial_neurons import Refinement, prepare_neurons
from .maps import METHODS, Map
from .maps.cayley import Cayley, cayley
from .maps.exponential import Exponential, exponential
from .maps.gram_schmidt import GramSchmidt, gram_schmidt
from .maps.householder import Householder, householder
from .maps.lowdin import Lowdin, lowdin
from .maps.newton_schulz import newton_schulz
from .maps.orthogonal_map import Free
from .maps.structured import Banded, Hessenberg, Skew, Symmetric, SymmetricPositive, Triangular
from .matrix_groups import MatrixGroups, matrix_groups
from .merge import merge, unmerge
from .multitask import add_task, use_task
from .muon import Muon, orthogonalize
from .ogd import OGD, ParamGroups, param_groups
from .orthogonality import orthogonality_error, orthogonality_penalty, trainable_parameters
from .overparameterize import overparameterize
from .penalty import OrthogonalityPenalty
from .pion import Pion
from .tuning.adapter_files import load_adapters, save_adapters
from .tuning.average import average_tasks
from .tuning.finetune import finetune
from .tuning.int8 import Int8Linear
from .tuning.redraw import redraw, redraw_every
from .tuning.tuning_method import TuningMethod
from .tuning.tuning_plan import TuningPlan, tuning_plan

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
    "Int8Linear",
    "Lowdin",
    "Map",
    "MatrixGroups",
    "Muon",
    "OrthogonalityPenalty",
    "ParamGroups",
    "Pion",
    "Refinement",
    "Skew",
    "Symmetric",
    "SymmetricPositive",
    "Triangular",
    "TuningMethod",
    "TuningPlan",
    "add_task",
    "average_tasks",
    "cayley",
    "coverage",
    "exponential",
    "finetune",
    "gram_schmidt",
    "householder",
    "load_adapters",
    "lowdin",
    "matrix_groups",
    "merge",
    "newton_schulz",
    "orthogonality_error",
    "orthogonality_penalty",
    "orthogonalize",
    "overparameterize",
    "param_groups",
    "prepare_neurons",
    "redraw",
    "redraw_every",
    "save_adapters",
    "trainable_parameters",
    "tuning_plan",
    "unmerge",
    "use_task",
]
