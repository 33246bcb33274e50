"""Deep representation learning on the hypersphere: objectives, operators, energy and orthogonal training for PyTorch."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from . import angular, energy, geometry, neurons, objectives, operators, orthogonal
from .energy import (
    MHE,
    CoMHE,
    class_energy,
    hyperspherical_energy,
    minimize_energy,
    refine_,
)
from .objectives import (
    AdaCos,
    AdaFace,
    AMSoftmax,
    Annealing,
    ArcFace,
    ASoftmax,
    CenterLoss,
    CosFace,
    CurricularFace,
    ElasticFace,
    GASoftmax,
    Hinge,
    LSoftmax,
    MagFace,
    MarginSoftmax,
    MVSoftmax,
    Softmax,
    SphereFace,
    SphereFace2,
    SphereFaceR,
    SSoftmax,
    UniFace,
    WSoftmax,
    margins,
)
from .operators import SphereNorm, convert, magnitudes, project_weights, restore, weighted_gradients
from .orthogonal import (
    OGD,
    add_task,
    merge,
    orthogonality_error,
    orthogonality_penalty,
    overparameterize,
    param_groups,
    trainable_parameters,
    unmerge,
    use_task,
)

if TYPE_CHECKING:
    from . import data, evaluation, experiments, models, plots, recognition, training

__version__ = "0.1.0"

# Imported when first used, so that `import hypersphere` stays light.
_LAZY = ("data", "evaluation", "experiments", "models", "plots", "recognition", "training")

__all__ = [
    "MHE",
    "OGD",
    "AMSoftmax",
    "ASoftmax",
    "AdaCos",
    "AdaFace",
    "Annealing",
    "ArcFace",
    "CenterLoss",
    "CoMHE",
    "CosFace",
    "CurricularFace",
    "ElasticFace",
    "GASoftmax",
    "Hinge",
    "LSoftmax",
    "MVSoftmax",
    "MagFace",
    "MarginSoftmax",
    "SSoftmax",
    "Softmax",
    "SphereFace",
    "SphereFace2",
    "SphereFaceR",
    "SphereNorm",
    "UniFace",
    "WSoftmax",
    "__version__",
    "add_task",
    "angular",
    "class_energy",
    "convert",
    "data",
    "energy",
    "evaluation",
    "experiments",
    "geometry",
    "hyperspherical_energy",
    "magnitudes",
    "margins",
    "merge",
    "minimize_energy",
    "models",
    "neurons",
    "objectives",
    "operators",
    "orthogonal",
    "orthogonality_error",
    "orthogonality_penalty",
    "overparameterize",
    "param_groups",
    "plots",
    "project_weights",
    "recognition",
    "refine_",
    "restore",
    "trainable_parameters",
    "training",
    "unmerge",
    "use_task",
    "weighted_gradients",
]


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
