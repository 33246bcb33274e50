"""Optional dependencies: imported when used, and named with their install line when missing."""

import importlib
from types import ModuleType


def require(module: str, extra: str = "train") -> ModuleType:
    """Import an optional dependency.

    The install line also serves a clone installed with ``pip install -c constraints.txt -e .``: pip takes the extra from the
    installed distribution.

    >>> require("math").pi > 3
    True
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # the module is there; something it needs is not
        raise ImportError(
            f"this needs {error.name}, which is not installed: pip install 'torch-hypersphere[{extra}]'"
        ) from error
