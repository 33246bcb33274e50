"""Names of classes and functions in configurations: look up a name, and find the name of an object.

A configuration writes ``ArcFace``, not an import path, so a class can move between modules without breaking files. Names
are looked up in the public packages of this library and of torch, and in packages that other distributions register
under the entry point group ``hypersphere.packages``::

    [project.entry-points."hypersphere.packages"]
    mine = "my_distribution.heads"
"""

import difflib
import functools
import importlib
import importlib.metadata
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .signatures import parameters, read_annotations

ENTRY_POINTS = "hypersphere.packages"
OWN_PACKAGES = (
    "hypersphere.objectives",
    "hypersphere.objectives.margins",
    "hypersphere.angular",
    "hypersphere.operators",
    "hypersphere.operators.magnitudes",
    "hypersphere.energy",
    "hypersphere.energy.kernels",
    "hypersphere.energy.projections",
    "hypersphere.orthogonal",
    "hypersphere.orthogonal.maps",
    "hypersphere.models",
    "hypersphere.data",
    "hypersphere.training",
    "hypersphere.training.tasks",
    "torch.optim",
    "torch.nn",
)
# Former name → current name, for files written before a class was renamed. A test keeps the table complete.
ALIASES: dict[str, str] = {"Preprocessing": "PicturePreprocessing"}


def list_packages() -> tuple[str, ...]:
    """Return the packages in which names are looked up: those of this library and torch, then those from entry points.

    >>> from hypersphere.config import list_packages
    >>> "hypersphere.objectives" in list_packages()
    True
    """
    return OWN_PACKAGES + _list_registered()


@functools.cache
def _list_registered() -> tuple[str, ...]:
    return tuple(entry.value for entry in importlib.metadata.entry_points(group=ENTRY_POINTS))


@functools.cache
def list_public(package: str) -> Mapping[str, Any]:
    """Return the public classes and functions of a package by name."""
    module = importlib.import_module(package)
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    values = {name: getattr(module, name) for name in names}
    return {name: value for name, value in values.items() if callable(value) and not inspect.ismodule(value)}


@functools.cache
def find_builders(
    base: Any, packages: tuple[str, ...] | None = None, takes: str | None = None
) -> Mapping[str, Callable[..., Any]]:
    """Return the public classes derived from ``base`` and the functions that return one, by name.

    Every object is also listed as ``package.Name``. If two packages use the same name for different objects, the name alone
    means the object of the first package.

    Args:
        base: A class or a tuple of classes.
        packages: Packages to search. None means :func:`list_packages`.
        takes: If set, keep only objects with an argument of this name, such as ``model``.

    >>> from hypersphere.config import find_builders
    >>> from hypersphere.objectives.margins import Margin
    >>> "AdditiveAngle" in find_builders(Margin), "ArcFace" in find_builders(Margin)
    (True, False)
    """
    builders: dict[str, Callable[..., Any]] = {}
    for package in list_packages() if packages is None else packages:
        for name, value in list_public(package).items():
            if _is_builder(value, base) and (takes is None or takes in parameters(value)):
                builders.setdefault(name, value)
                builders[f"{package.rpartition('.')[2]}.{name}"] = value
    return builders


def look_up(
    name: str, base: Any, packages: Iterable[str] | None, path: str, takes: str | None = None
) -> Callable[..., Any]:
    """Return the class or function that has a name.

    Args:
        name: A public name, a name ``package.Name``, or a former name listed in ``ALIASES``.
        base: The class that it must build.
        packages: Packages to search. None means :func:`list_packages`.
        path: The name of the setting in messages.
        takes: If set, the name of an argument that it must have.

    Raises:
        ValueError: If the name is unknown. The message lists the known names and suggests the nearest one.

    >>> from hypersphere.config import look_up
    >>> look_up("CosFace", torch.nn.Module, ["hypersphere.objectives"], "head").__name__
    'CosFace'
    >>> look_up("CosFac", torch.nn.Module, ["hypersphere.objectives"], "head")
    Traceback (most recent call last):
    ...
    ValueError: head must be one of ..., got 'CosFac'; did you mean CosFace?
    """
    known = find_builders(base, None if packages is None else tuple(packages), takes)
    for spelling in (name, ALIASES.get(name, name)):
        if spelling in known:
            return known[spelling]
    plain = [key for key in known if "." not in key]
    raise ValueError(f"{path} must be one of {', '.join(plain)}, got {name!r}{suggest(name, plain)}")


def import_target(name: str, path: str) -> Callable[..., Any]:
    """Import a class or function outside the library from ``package.module:name``.

    Args:
        name: The module, a colon, and the name inside it.
        path: The name of the setting in messages.

    Raises:
        ValueError: If it cannot be imported or is not callable.

    >>> from hypersphere.config import import_target
    >>> import_target("collections:OrderedDict", "data").__name__
    'OrderedDict'
    >>> import_target("collections:Nothing", "data")
    Traceback (most recent call last):
    ...
    ValueError: data: 'collections:Nothing' cannot be imported: ...
    """
    module, _, attribute = name.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path}: {name!r} cannot be imported: {error}") from error
    if not callable(value):
        raise ValueError(f"{path} must name something callable, got {name!r}, a {type(value).__name__}")
    return typing.cast(Callable[..., Any], value)


def spell_target(target: Callable[..., Any]) -> str:
    """Return the name of a class or function in a configuration.

    Args:
        target: A class or function.

    Returns:
        Its name if a package of :func:`list_packages` exports it, otherwise ``module:name``.

    >>> from collections import OrderedDict
    >>> from hypersphere.config import spell_target
    >>> spell_target(hs.objectives.ArcFace), spell_target(OrderedDict)
    ('ArcFace', 'collections:OrderedDict')
    """
    name = getattr(target, "__name__", "")
    distribution = str(getattr(target, "__module__", "")).partition(".")[0]
    for package in (package for package in list_packages() if package.partition(".")[0] == distribution):
        if list_public(package).get(name) is target:
            first = next(p for p in list_packages() if name in list_public(p))
            return str(name) if list_public(first)[name] is target else f"{package.rpartition('.')[2]}.{name}"
    return f"{target.__module__}:{getattr(target, '__qualname__', name)}"


def suggest(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean …?"`` with the nearest known name, or an empty string if no known name is similar.

    >>> suggest("ArcFac", ["ArcFace", "CosFace"])
    '; did you mean ArcFace?'
    """
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def _is_builder(value: Any, base: Any) -> bool:
    """Return whether a value is a concrete subclass of ``base`` or a function annotated to return one."""
    if base is Any or base is object:
        return True
    if inspect.isclass(value):
        return _is_subclass(value, base) and not inspect.isabstract(value)
    result = read_annotations(value).get("return")
    return inspect.isclass(result) and _is_subclass(result, base)


def _is_subclass(kind: type, base: Any) -> bool:
    try:
        return issubclass(kind, base)
    except TypeError:  # a protocol with data members does not support issubclass
        return False
