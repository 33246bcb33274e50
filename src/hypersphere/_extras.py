"""Import of optional dependencies, with the command that installs a missing one."""

import importlib
from types import ModuleType


def require(module: str, extra: str = "train") -> ModuleType:
    """Import an optional dependency.

    The command in the message also works for a clone installed with ``pip install -c constraints.txt -e .``, because pip takes
    the extra from the installed distribution.

    Raises:
        ImportError: If it is not installed.

    >>> require("math").pi > 3
    True
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # the module is installed, but one of its own dependencies is not
        raise ImportError(
            f"this needs {error.name}, which is not installed: pip install 'torch-hypersphere[{extra}]'"
        ) from error
