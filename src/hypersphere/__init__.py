"""Deep representation learning on the hypersphere: objectives, operators, energy and orthogonal training for PyTorch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see; at run time __getattr__ imports a name when it is first used
    from . import (
        angular,
        data,
        energy,
        evaluation,
        geometry,
        models,
        neurons,
        objectives,
        operators,
        orthogonal,
        plots,
        recipes,
        recognition,
        report,
        training,
    )
    from .energy import MHE, CoMHE, class_energy, hyperspherical_energy, minimize_energy, refine_
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
    from .recognition import Embedder, Gallery, evaluate, load
    from .training import fit

__version__ = "0.1.0"

# Nothing is imported before it is used, so that `import hypersphere` and `hypersphere --help` do not import PyTorch.
_PACKAGES = frozenset(
    """
    angular data energy evaluation geometry models neurons objectives operators orthogonal plots recipes recognition
    report training
    """.split()  # noqa: SIM905 - one name per line would hide the table below
)
# The classes and functions of each package that are also available here.
_NAMES = {
    "energy": "MHE CoMHE class_energy hyperspherical_energy minimize_energy refine_",
    "neurons": "ChangeReport get_change_report",
    "objectives": """
        AMSoftmax ASoftmax AdaCos AdaFace Annealing ArcFace CenterLoss CosFace CurricularFace ElasticFace GASoftmax Hinge
        LSoftmax MVSoftmax MagFace MarginSoftmax SSoftmax Softmax SphereFace SphereFace2 SphereFaceR UniFace WSoftmax
        margins""",
    "operators": "SphereNorm convert magnitudes project_weights restore weighted_gradients",
    "orthogonal": """
        OGD add_task count_rotation_parameters finetune group_parameters merge orthogonality_error overparameterize
        unmerge use_task""",
    "recognition": "Embedder Gallery evaluate load",
    "training": "fit",
}
_PACKAGE_OF = {name: package for package, names in _NAMES.items() for name in names.split()}

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
    "Embedder",
    "GASoftmax",
    "Gallery",
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
    "evaluate",
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
    """Import a package, or a class or function of one, when it is first used."""
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    if name in _PACKAGE_OF:
        value = getattr(importlib.import_module(f".{_PACKAGE_OF[name]}", __name__), name)
        globals()[name] = value  # so that __getattr__ is not called for it again
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
