"""Which public names a value may have: everything the rooms export, looked up by what it builds. There is no list beside them."""

import difflib
import functools
import importlib
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .signatures import hints, parameters

ROOMS = (
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


@functools.cache
def public(room: str) -> Mapping[str, Any]:
    """The public classes and functions of a module, by name."""
    module = importlib.import_module(room)
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in names}
    return {name: value for name, value in found.items() if callable(value) and not inspect.ismodule(value)}


@functools.cache
def builders(base: Any, rooms: tuple[str, ...] = ROOMS, takes: str | None = None) -> Mapping[str, Callable[..., Any]]:
    """Public classes derived from ``base`` (a class or a tuple), and functions that return one, by name.

    With ``takes`` only those that have an argument of this name, such as ``model``.

    A name that two rooms have for different things is listed as ``room.Name`` too; alone it means the first.

    >>> from hypersphere.objectives.margins import Margin
    >>> "AdditiveAngle" in builders(Margin), "ArcFace" in builders(Margin)
    (True, False)
    """
    found: dict[str, Callable[..., Any]] = {}
    for room in rooms:
        for name, value in public(room).items():
            if _builds(value, base) and (takes is None or takes in parameters(value)):
                found.setdefault(name, value)
                found[f"{room.rpartition('.')[2]}.{name}"] = value
    return found


def lookup(name: str, base: Any, rooms: Iterable[str], path: str, takes: str | None = None) -> Callable[..., Any]:
    """The builder of a name; an unknown one is a ``ValueError`` that lists what there is and the nearest name.

    >>> from hypersphere.config import lookup
    >>> lookup("CosFace", torch.nn.Module, ["hypersphere.objectives"], "head").__name__
    'CosFace'
    >>> lookup("CosFac", torch.nn.Module, ["hypersphere.objectives"], "head")
    Traceback (most recent call last):
    ...
    ValueError: head must be one of ..., got 'CosFac'; did you mean CosFace?
    """
    known = builders(base, tuple(rooms), takes)
    if name in known:
        return known[name]
    plain = [key for key in known if "." not in key]
    raise ValueError(f"{path} must be one of {', '.join(plain)}, got {name!r}{nearest(name, plain)}")


def imported(name: str, path: str) -> Callable[..., Any]:
    """``package.module:name``: something of the user's own.

    >>> from hypersphere.config import imported
    >>> imported("collections:OrderedDict", "data").__name__
    'OrderedDict'
    >>> imported("collections:Nothing", "data")
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


def spelled(target: Callable[..., Any]) -> str:
    """How a target is written in a config: its name where a room exports it, ``module:name`` otherwise.

    >>> from collections import OrderedDict
    >>> from hypersphere.config import spelled
    >>> spelled(hs.objectives.ArcFace), spelled(OrderedDict)
    ('ArcFace', 'collections:OrderedDict')
    """
    name = getattr(target, "__name__", "")
    package = str(getattr(target, "__module__", "")).partition(".")[0]
    for room in (room for room in ROOMS if room.partition(".")[0] == package):
        if public(room).get(name) is target:
            first = next(r for r in ROOMS if name in public(r))
            return str(name) if public(first)[name] is target else f"{room.rpartition('.')[2]}.{name}"
    return f"{target.__module__}:{getattr(target, '__qualname__', name)}"


def nearest(word: str, known: Iterable[str]) -> str:
    """``"; did you mean …?"``, or nothing if nothing is near.

    >>> nearest("ArcFac", ["ArcFace", "CosFace"])
    '; did you mean ArcFace?'
    """
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def _builds(value: Any, base: Any) -> bool:
    if base is Any or base is object:
        return True
    if inspect.isclass(value):
        return _derives(value, base) and not inspect.isabstract(value)
    made = hints(value).get("return")
    return inspect.isclass(made) and _derives(made, base)


def _derives(kind: type, base: Any) -> bool:
    try:
        return issubclass(kind, base)
    except TypeError:  # a protocol with data members cannot be asked
        return False
