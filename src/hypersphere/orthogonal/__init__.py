"""Orthogonal over-parameterized training (Part IV): neurons w_i = R v_i with fixed v_i and a learned orthogonal R."""

from ._merge import merge, unmerge
from ._overparameterize import overparameterize
from .finetuning.adapter_files import load_adapters, save_adapters
from .finetuning.finetune import finetune
from .finetuning.finetuning_merge import FinetuningSplit, average_tasks, merge_finetunings, split_finetuning
from .finetuning.generator_groups import group_finetuned
from .finetuning.peft_files import load_peft_adapter, save_peft_adapter
from .finetuning.quantized_linear import Int4Linear, Int8Linear
from .finetuning.redraw import redraw, redraw_every
from .finetuning.rewinding import choose_rewind, rewind
from .finetuning.tuning_method import TuningMethod
from .finetuning.tuning_plan import plan_finetune
from .initial_neurons import Refinement, prepare_neurons
from .layer_selection import plan_overparameterize
from .low_rank_layers import factorize
from .maps import METHODS, Map
from .maps.canonical import Canonical, canonical
from .maps.cayley import Cayley, cayley
from .maps.exponential import Exponential, exponential
from .maps.givens import Givens, givens
from .maps.gram_schmidt import GramSchmidt, gram_schmidt
from .maps.householder import Householder, householder
from .maps.lowdin import Lowdin, lowdin
from .maps.newton_schulz import newton_schulz
from .maps.orthogonal_map import Free
from .maps.polar_coefficients import polar_coefficients
from .maps.structured import Banded, Hessenberg, Skew, Symmetric, SymmetricPositive, Triangular
from .matrix_groups import MatrixGroups, group_matrices
from .multitask import add_task, use_task
from .muon import Muon, orthogonalize
from .ogd import OGD, ParamGroups, group_parameters
from .orthogonality import OrthogonalityPenalty, count_rotation_parameters, orthogonality_error
from .pion import Pion
from .sphere_optimizer import Hyperball, MuonSphere

__all__ = [
    "METHODS",
    "OGD",
    "Banded",
    "Canonical",
    "Cayley",
    "Exponential",
    "FinetuningSplit",
    "Free",
    "Givens",
    "GramSchmidt",
    "Hessenberg",
    "Householder",
    "Hyperball",
    "Int4Linear",
    "Int8Linear",
    "Lowdin",
    "Map",
    "MatrixGroups",
    "Muon",
    "MuonSphere",
    "OrthogonalityPenalty",
    "ParamGroups",
    "Pion",
    "Refinement",
    "Skew",
    "Symmetric",
    "SymmetricPositive",
    "Triangular",
    "TuningMethod",
    "add_task",
    "average_tasks",
    "canonical",
    "cayley",
    "choose_rewind",
    "count_rotation_parameters",
    "exponential",
    "factorize",
    "finetune",
    "givens",
    "gram_schmidt",
    "group_finetuned",
    "group_matrices",
    "group_parameters",
    "householder",
    "load_adapters",
    "load_peft_adapter",
    "lowdin",
    "merge",
    "merge_finetunings",
    "newton_schulz",
    "orthogonality_error",
    "orthogonalize",
    "overparameterize",
    "plan_finetune",
    "plan_overparameterize",
    "polar_coefficients",
    "prepare_neurons",
    "redraw",
    "redraw_every",
    "rewind",
    "save_adapters",
    "save_peft_adapter",
    "split_finetuning",
    "unmerge",
    "use_task",
]
