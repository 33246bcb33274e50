"""A value of a config is a constructor call that has not been made yet: what is called, and with which arguments."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .signatures import Parameter, parameters
from .values import accepts_callable, check_value, is_deferred

# How constructors that do not check their arguments fail on wrong ones.
WRONG_VALUES = (TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError)


@dataclass(frozen=True)
class Call:
    """``target(**arguments)``, to be made by :meth:`build`; arguments may be calls themselves.

    ``arguments`` are checked against the signature of the target at once, so a wrong name or type is an error where it is
    written, not where it is used.

    >>> from hypersphere.objectives import ArcFace
    >>> head = Call(ArcFace, {"m": 0.4})
    >>> head.build(in_features=8, num_classes=10).margin
    AdditiveAngle(m=0.4)
    >>> Call(ArcFace, {"margin_size": 1})
    Traceback (most recent call last):
    ...
    ValueError: ArcFace has no argument margin_size; it has ...
    """

    target: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = parameters(self.target)
        checked = {}
        for name, value in self.arguments.items():
            if name not in known:
                raise ValueError(f"{self.name} has no argument {name}; it has {', '.join(known)}")
            checked[name] = check_value(value, known[name].annotation, f"{self.name}.{name}")
        object.__setattr__(self, "arguments", checked)

    @property
    def name(self) -> str:
        """The name of what is called."""
        return str(getattr(self.target, "__name__", type(self.target).__name__))

    def get(self, name: str) -> Any:
        """The argument as it is set here, or its default in the signature; ``ValueError`` if there is none of that name."""
        if name in self.arguments:
            return self.arguments[name]
        known = parameters(self.target)
        if name not in known:
            raise ValueError(f"{self.name} has no argument {name}; it has {', '.join(known)}")
        return known[name].default

    def replace(self, **changes: Any) -> "Call":
        """A copy with other arguments; ``inner__name`` changes an argument of an argument that is a call.

        >>> from hypersphere.objectives import ArcFace
        >>> Call(ArcFace, {"m": 0.4}).replace(scale=20.0).arguments
        {'m': 0.4, 'scale': 20.0}
        """
        return Call(self.target, replace_nested(self.arguments, changes, f"{self.name}."))

    def build(self, **context: Any) -> Any:
        """Make the call.

        Arguments that are calls are made first. Parameters of the target that are not set here are taken from ``context``
        by their name: what the surroundings know, such as ``num_classes`` for a head or ``model`` for a regulariser.

        Raises:
            ValueError: if the target refuses its arguments, in whatever way a class of another library does so.
        """
        known = parameters(self.target)
        given = {name: value for name, value in context.items() if name in known}
        given |= {name: _make(value, known[name], context) for name, value in self.arguments.items()}
        missing = [name for name, parameter in known.items() if parameter.required and name not in given]
        if missing:
            raise ValueError(f"{self.name} needs {', '.join(missing)}: set it, e.g. {missing[0]}=…")
        try:
            return self.target(**given)
        except WRONG_VALUES as error:
            if isinstance(error, RuntimeError) and "memory" in str(error):
                raise
            written = ", ".join(f"{name}={value!r}"[:60] for name, value in self.arguments.items())
            raise ValueError(
                f"{self.name}({written}) cannot be made: {str(error).splitlines()[0] if str(error) else error!r}"
            ) from error

    def partial(self, **context: Any) -> Callable[..., Any]:
        """A function that makes the call with further positional and keyword arguments: a factory of layers or heads."""
        known = parameters(self.target)
        given = {name: _make(value, known[name], context) for name, value in self.arguments.items()}
        return functools.partial(self.target, **given)


def call(target: Callable[..., Any], /, **arguments: Any) -> Call:
    """``Call(target, arguments)`` written like the call it stands for.

    >>> from hypersphere.objectives import CosFace
    >>> call(CosFace, m=0.2).arguments
    {'m': 0.2}
    """
    return Call(target, arguments)


def replace_nested(values: Mapping[str, Any], changes: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """``values`` with ``changes``, of which ``part__knob`` changes the call, mapping or dataclass ``values[part]``.

    >>> from hypersphere.config import call, replace_nested
    >>> values = replace_nested({"steps": 10, "head": call(hs.objectives.ArcFace)}, {"steps": 20, "head__m": 0.4})
    >>> values["steps"], values["head"].arguments
    (20, {'m': 0.4})
    """
    result = dict(values)
    inner: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        part, _, rest = key.partition("__")
        if rest:
            inner.setdefault(part, {})[rest] = value
        else:
            result[key] = value
    for part, more in inner.items():
        if not hasattr(result.get(part), "replace"):
            raise ValueError(f"{path}{part} is not set, so it has no {', '.join(more)} to change")
        result[part] = result[part].replace(**more)
    return result


def _make(value: Any, parameter: Parameter, context: Mapping[str, Any]) -> Any:
    """An argument as the target wants it: a call stays one, becomes a factory, or is made."""
    if isinstance(value, tuple | list):
        return type(value)(_make(item, parameter, context) for item in value)
    if not isinstance(value, Call) or is_deferred(parameter.annotation):
        return value
    return value.partial(**context) if accepts_callable(parameter.annotation) else value.build(**context)
