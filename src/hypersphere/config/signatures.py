"""Parameters of a class or function: names, types, defaults and help, read from its signature and docstring."""

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, is_typeddict

from typing_extensions import Unpack

MISSING = inspect.Parameter.empty


class Own:
    """A marker for a default that only the target knows, because it passes the option on."""

    def __repr__(self) -> str:
        return "(its own)"


OWN = Own()


@dataclass(frozen=True)
class Parameter:
    """One argument of a constructor.

    >>> from hypersphere.config import parameters
    >>> gamma = parameters(hs.training.StepRate)["gamma"]
    >>> gamma.default, gamma.required, gamma.help
    (0.1, False, 'a positive number.')
    """

    name: str
    annotation: Any
    default: Any
    help: str = ""

    @property
    def required(self) -> bool:
        """Whether a call must set this argument."""
        return self.default is MISSING


@functools.cache
def parameters(target: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the keyword arguments of a class or function in the order of the signature, with ``Unpack[…]`` expanded.

    >>> def head(size: int, *, m: float = 0.5): ...
    >>> {name: (p.annotation.__name__, p.required) for name, p in parameters(head).items()}
    {'size': ('int', True), 'm': ('float', False)}
    """
    function = _get_function(target)
    kinds = read_annotations(function)
    above = [cls for cls in reversed(target.__mro__) if cls is not object] if inspect.isclass(target) else [target]
    texts = {name: text for cls in above for name, text in _read_help(cls).items()}
    found: dict[str, Parameter] = {}
    signed = list(inspect.signature(function).parameters.items())
    for name, parameter in signed[inspect.isclass(target) :]:  # a constructor without its self
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            continue
        hint = kinds.get(name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            passed = _read_unpacked(hint) or _read_inherited(target)
            found |= {key: value for key, value in passed.items() if key not in found}
        else:
            found[name] = Parameter(name, hint, _get_default(target, parameter), texts.get(name, ""))
    return found


def summary(target: Callable[..., Any]) -> str:
    """Return the first sentence of the docstring.

    >>> from hypersphere.config import summary
    >>> summary(hs.training.ConstantRate)
    'A constant learning rate after the warm-up.'
    """
    text = inspect.getdoc(target) or ""
    return text.strip().split("\n\n")[0].replace("\n", " ")


def _get_function(target: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isclass(target):
        return typing.cast(Callable[..., Any], target.__init__)  # type: ignore[misc]
    return target


def _get_default(target: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the default of a parameter; for a dataclass field with a factory, the value of the factory."""
    if dataclasses.is_dataclass(target):
        for field in dataclasses.fields(target):
            if field.name == parameter.name and field.default_factory is not dataclasses.MISSING:
                return field.default_factory()
    return parameter.default


def read_annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function, each evaluated separately; one that cannot be evaluated is ``Any``."""
    while hasattr(
        function, "__wrapped__"
    ):  # functions wrapped by the shape checks of the tests keep their annotations inside
        function = function.__wrapped__
    found: dict[str, Any] = {}
    for name, hint in getattr(function, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: hint}, __module__=function.__module__)
        try:
            found |= typing.get_type_hints(holder, getattr(function, "__globals__", None), include_extras=True)
        except (NameError, TypeError):  # an annotation that cannot be evaluated accepts anything
            found[name] = Any
    return found


def _read_unpacked(hint: Any) -> dict[str, Parameter]:
    """Return the keys of the TypedDict of ``**options: Unpack[Options]``."""
    if typing.get_origin(hint) is Unpack:
        hint = typing.get_args(hint)[0]
    if not is_typeddict(hint) and not hasattr(hint, "__required_keys__"):
        return {}
    texts = _read_help(hint)
    kinds = typing.get_type_hints(hint, include_extras=True)
    return {name: Parameter(name, kind, OWN, texts.get(name, "")) for name, kind in kinds.items()}


def _read_inherited(target: Any) -> dict[str, Parameter]:
    """Return the arguments that un-annotated ``**options`` accept: those of the base class."""
    if not inspect.isclass(target):
        return {}
    parent = next((cls for cls in target.__mro__[1:] if "__init__" in vars(cls) and cls is not object), None)
    return {} if parent is None else parameters(parent)


def _read_help(target: Any) -> dict[str, str]:
    """Read help texts from ``Args:`` sections, lists with ``- ``name``: text``, and strings under dataclass fields."""
    text = inspect.getdoc(target) or ""
    if inspect.isclass(target) and target.__init__.__doc__ and "Args:" not in text:  # type: ignore[misc]
        text += "\n" + inspect.cleandoc(target.__init__.__doc__)  # type: ignore[misc]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        match = re.match(r"^\s*(?:- )?((?:``)?\*{0,2}\w+(?:``)?(?:, (?:``)?\w+(?:``)?)*): (.+)$", line)
        if match:
            names = [name.strip("`* ") for name in match.group(1).split(",")]
            found |= dict.fromkeys(names, match.group(2))
        elif names and re.match(r"^\s{4,}\S", line):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return found
