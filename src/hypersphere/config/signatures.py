"""Parameters of a class or function, read from its signature and docstring, and the conversion of text or JSON to their types."""

import ast
import collections.abc
import dataclasses
import functools
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, is_typeddict

import torch
from typing_extensions import Unpack

MISSING = inspect.Parameter.empty
UNIONS = (types.UnionType, typing.Union)
SEQUENCES = (tuple, list, set, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
PLAIN = (bool, int, float, str, type(None))
NEVER_BUILT = (type, collections.abc.Mapping, collections.abc.Iterator)
NOT_BUILT = (Any, *PLAIN, *SEQUENCES, dict, torch.dtype, torch.device, torch.Tensor)


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


@dataclass(frozen=True)
class Kind:
    """The type that a deferred call must build: ``Annotated[Call, Kind(base, packages, start)]`` is a slot of a config.

    ``start`` is what is called when a key inside an empty slot is set, where there is one natural choice; ``takes`` leaves
    only what has an argument of this name. ``given`` names the arguments that come from the surroundings when the call is made,
    here and in the calls inside it: they are not listed as keys, and their defaults are not part of a config.

    >>> from hypersphere.config import Call, Kind, assign, call
    >>> def trained(rate: Annotated[Call, Kind(hs.training.Schedule, ("hypersphere.training",))]): ...
    >>> assign(call(trained), ["rate=CosineRate", "rate.final=0.1"]).get("rate").build().final
    0.1
    """

    base: Any = object
    packages: tuple[str, ...] | None = None
    start: Callable[..., Any] | None = None
    takes: str | None = None
    given: tuple[str, ...] = ()


def is_deferred(annotation: Any) -> bool:
    """Return whether a parameter accepts a call that is made later."""
    return get_kind(annotation) is not None


def get_kind(annotation: Any) -> Kind | None:
    """Return the :class:`Kind` of a slot, also of an optional slot or of the entries of a tuple."""
    for option in list_options(annotation):
        if typing.get_origin(option) is Annotated:
            for extra in typing.get_args(option)[1:]:
                if isinstance(extra, Kind):
                    return extra
        if typing.get_origin(option) in SEQUENCES:
            for inner in typing.get_args(option):
                if get_kind(inner) is not None:
                    return get_kind(inner)
    return None


def list_options(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the annotation itself."""
    if typing.get_origin(annotation) in UNIONS:
        return tuple(inner for option in typing.get_args(annotation) for inner in list_options(option))
    return (annotation,)


def accepts_callable(annotation: Any) -> bool:
    """Return whether an annotation asks for a factory instead of the object that it makes."""
    wanted = list_options(annotation)
    return any(_is_callable(option) for option in wanted) and not any(
        inspect.isclass(option) and option not in PLAIN and not _is_callable(option) for option in wanted
    )


def list_bases(annotation: Any) -> tuple[Any, ...]:
    """Return the classes of the objects or factories that a parameter accepts; none if it accepts only plain values."""
    found: list[Any] = []
    for option in list_options(annotation):
        if _is_callable(option):
            found.append(object)
        else:
            made = typing.get_origin(option) or option  # Dataset[Tensor] asks for a Dataset
            if inspect.isclass(made) and made not in NOT_BUILT and made not in NEVER_BUILT:
                found.append(made)
    return tuple(found)


def list_results(annotation: Any) -> tuple[type, ...]:
    """Return the classes that a factory of this annotation builds: ``Callable[..., Module]`` builds a ``Module``.

    A factory of tensors is a module here, because a file can name no plain function of tensors.
    """
    found = []
    for option in list_options(annotation):
        if typing.get_origin(option) is collections.abc.Callable:
            made = typing.get_args(option)[-1]
            found.append(torch.nn.Module if made is torch.Tensor else made)
    return tuple(made for made in found if inspect.isclass(made) and made is not object)


def entry_annotation(annotation: Any) -> Any:
    """Return the annotation of the entries of a sequence, or the annotation itself if it is not one."""
    for option in list_options(annotation):
        if typing.get_origin(option) in SEQUENCES and typing.get_args(option):
            return typing.get_args(option)[0]
    return annotation


def parse(text: str, annotation: Any) -> Any:
    """Parse text of a command line: it stays text if the annotation accepts text, otherwise it is JSON or a Python literal.

    >>> parse("1e-3", float), parse("none", int | None), parse("3,5", tuple[int, ...]), parse("unit", Literal["unit"])
    (0.001, None, (3, 5), 'unit')
    """
    wanted = list_options(annotation)
    literals = [value for o in wanted if typing.get_origin(o) is Literal for value in typing.get_args(o)]
    if text in literals:
        return text
    for value in literals:
        if not isinstance(value, str) and text.lower() == str(value).lower():  # Literal[False] is written false
            return value
    if type(None) in wanted and text.lower() in ("none", "null"):
        return None
    if bool in wanted and text.lower() in ("true", "false"):
        return text.lower() == "true"
    value = _read_literal(text)
    if isinstance(value, int | float) and not isinstance(value, bool) and (int in wanted or float in wanted):
        return value
    if str in wanted and "," not in text:
        return text
    if any(typing.get_origin(o) in SEQUENCES or o in SEQUENCES for o in wanted) and not text.startswith(("[", "(")):
        text = text.replace("x", ",").replace("×", ",") if re.fullmatch(r"\d+([x×]\d+)+", text) else text  # a size
        inner = next((a for o in wanted for a in typing.get_args(o)[:1]), Any)
        return tuple(parse(part.strip(), inner) for part in text.split(",") if part.strip())
    return text if str in wanted else value


def check_value(value: Any, annotation: Any, path: str) -> Any:
    """Convert ``value`` to the annotation (lists to tuples, integers to floats), or raise a ``ValueError`` with what is accepted."""
    if not isinstance(value, PLAIN) and not isinstance(value, list | tuple | dict):
        return value  # an object or a call, which is checked by its user
    for option in list_options(annotation):
        good, result = _fits(value, option, path)
        if good:
            return result
    raise ValueError(f"{path} must be {describe(annotation)}, got {value!r}")


def describe(annotation: Any) -> str:
    """Describe an annotation in words.

    >>> describe(int | None), describe(Literal["mean", "sum"]), describe(tuple[int, ...])
    ('an integer or none', "'mean' or 'sum'", 'a list')
    """
    words = []
    for option in list_options(annotation):
        origin = typing.get_origin(option)
        if origin is Literal:
            words.append(" or ".join(map(repr, typing.get_args(option))))
        elif origin is Annotated:
            words.append("the name of something to call")
        elif origin in SEQUENCES or option in SEQUENCES:
            words.append("a list")
        elif _is_callable(option):
            words.append("the name of a class or function")
        else:
            known = {bool: "true or false", int: "an integer", float: "a number", str: "text", type(None): "none"}
            name = getattr(option, "__name__", str(option))
            words.append(known.get(option, f"a {name}") if inspect.isclass(option) else name)
    return " or ".join(dict.fromkeys(words))


def _fits(value: Any, option: Any, path: str) -> tuple[bool, Any]:
    origin = typing.get_origin(option)
    if origin is Annotated:
        return _fits(value, typing.get_args(option)[0], path)
    if option is Any or isinstance(option, str | typing.TypeVar):
        return True, value
    if origin is Literal:
        return any(value == known and type(value) is type(known) for known in typing.get_args(option)), value
    if option is float:
        return isinstance(value, int | float) and not isinstance(value, bool), _float(value)
    if option is int:
        whole = isinstance(value, float) and value.is_integer() and math.isfinite(value)
        return (isinstance(value, int) and not isinstance(value, bool)) or whole, int(value) if whole else value
    if option in (bool, str, type(None)):
        return isinstance(value, option), value
    if option in (torch.dtype, torch.device):
        name = value.removeprefix("torch.") if isinstance(value, str) else ""
        found = getattr(torch, name, None) if option is torch.dtype else value
        return isinstance(value, str) and (option is torch.device or isinstance(found, torch.dtype)), found
    if origin in (dict, collections.abc.Mapping) or option is dict:
        return isinstance(value, dict), value
    if origin in SEQUENCES or option in SEQUENCES:
        return _sequence(value, option, path)
    if option is torch.Tensor or "Tensor" in str(option):
        return isinstance(value, list | tuple | float | int) and not isinstance(value, bool), value
    return False, value


def _sequence(value: Any, option: Any, path: str) -> tuple[bool, Any]:
    if not isinstance(value, list | tuple):
        return False, value
    inner = [kind for kind in typing.get_args(option) if kind is not Ellipsis]
    fixed = typing.get_origin(option) is tuple and Ellipsis not in typing.get_args(option) and inner
    if fixed and len(value) != len(inner):
        return False, value
    kinds = inner if fixed else [inner[0] if inner else Any] * len(value)
    try:
        return True, tuple(check_value(item, kind, path) for item, kind in zip(value, kinds, strict=True))
    except ValueError:
        return False, value


def _float(value: Any) -> Any:
    return float(value) if isinstance(value, int) else value


def _is_callable(option: Any) -> bool:
    origin = typing.get_origin(option)
    return option is Callable or origin is collections.abc.Callable or getattr(option, "_is_protocol", False)


def _read_literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass  # not JSON: perhaps Python, such as (1, 2) or 1_000
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
