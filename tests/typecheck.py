"""The tests' run-time type checker: beartype, which accepts an int for a float (PEP 484)."""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))

_with_shapes = jaxtyping.jaxtyped


def typed(function: Any = None, *, typechecker: Callable[[Any], Any]) -> Any:
    """Like ``jaxtyping.jaxtyped``, but skip shape checks if no annotation has a shape: three functions in four.

    Otherwise every call binds the arguments, stores their sizes and checks them twice.
    """
    if function is None:
        return functools.partial(typed, typechecker=typechecker)
    waits = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    if not inspect.isfunction(function) or waits or any(map(shaped, function.__annotations__.values())):
        return _with_shapes(function, typechecker=typechecker)
    checked, config = typechecker(function), jaxtyping.config

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return (function if config.jaxtyping_disable else checked)(*args, **kwargs)

    return run


def shaped(annotation: Any) -> bool:
    """Return True if an annotation contains a shape or may contain one. Strings are not parsed."""
    if isinstance(annotation, str | typing.ForwardRef):
        return True
    if isinstance(annotation, list):  # the arguments of a Callable
        return any(map(shaped, annotation))
    if (origin := typing.get_origin(annotation)) is not None:
        return origin is not typing.Literal and any(map(shaped, typing.get_args(annotation)))
    return inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray)
