"""Deep representation learning on the hypersphere: objectives, operators, energy and orthogonal training for PyTorch."""

import importlib
from typing import TYPE_CHECKING, Any

from . import angular, energy, geometry, neurons, objectives, operators, orthogonal
from .energy import (
    MHE,
    CoMHE,
    class_energy,
    hyperspherical_energy,
    minimize_energy,
    refine_,
)
from .neurons import ChangeReport, get_change_report
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
    count_rotation_parameters,
    finetune,
    group_parameters,
    merge,
    orthogonality_error,
    overparameterize,
    unmerge,
    use_task,
)

if TYPE_CHECKING:
    from . import data, evaluation, models, plots, recipes, recognition, report, training
    from .recognition import load
    from .training import fit

__version__ = "0.1.0"

# Imported when first used, so that `import hypersphere` stays light.
_LAZY = ("data", "evaluation", "models", "plots", "recipes", "recognition", "report", "training")
_DOORS = {"fit": "training", "load": "recognition"}  # functions, and the room each is in

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
    "ChangeReport",
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
    "count_rotation_parameters",
    "data",
    "energy",
    "evaluation",
    "finetune",
    "fit",
    "geometry",
    "get_change_report",
    "group_parameters",
    "hyperspherical_energy",
    "load",
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
    "overparameterize",
    "plots",
    "project_weights",
    "recipes",
    "recognition",
    "refine_",
    "report",
    "restore",
    "training",
    "unmerge",
    "use_task",
    "weighted_gradients",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f".{name}", __name__)
    if name in _DOORS:
        return getattr(importlib.import_module(f".{_DOORS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
