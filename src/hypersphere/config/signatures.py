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
# Types that no call in a settings file builds.
NOT_BUILT = (
    *(Any, *PLAIN, *SEQUENCES, dict, torch.dtype, torch.device, torch.Tensor),
    *(type, collections.abc.Mapping, collections.abc.Iterator),
)


class Own:
    """The marker for an unknown default: the target passes the option on, so its signature does not contain the default."""

    def __repr__(self) -> str:
        return "(its own)"


OWN = Own()


@dataclass(frozen=True)
class Parameter:
    """One argument of a constructor.

    >>> from hypersphere.config import parameters
    >>> gamma = parameters(hs.training.StepRate)["gamma"]
    >>> gamma.default, gamma.required, gamma.help
    (0.1, False, 'A positive number.')
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
    annotations = read_annotations(function)
    documented = [cls for cls in reversed(target.__mro__) if cls is not object] if inspect.isclass(target) else [target]
    texts = {name: text for owner in documented for name, text in _read_help(owner).items()}
    result: dict[str, Parameter] = {}
    signature = list(inspect.signature(function).parameters.items())
    for name, parameter in signature[inspect.isclass(target) :]:  # skip the self of a constructor
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            continue
        hint = annotations.get(name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            options = _read_unpacked(hint) or _read_inherited(target)
            result |= {key: value for key, value in options.items() if key not in result}
        else:
            result[name] = Parameter(name, hint, _get_default(target, parameter), texts.get(name, ""))
    return result


def summary(target: Callable[..., Any]) -> str:
    """Return the first paragraph of the docstring on one line.

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
    """Return the annotations of a function. Each is evaluated separately and becomes ``Any`` if that fails."""
    # The shape checks of the tests wrap functions; only the wrapped function has the annotations.
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    annotations: dict[str, Any] = {}
    for name, hint in getattr(function, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: hint}, __module__=function.__module__)
        try:
            annotations |= typing.get_type_hints(holder, getattr(function, "__globals__", None), include_extras=True)
        except (NameError, TypeError):
            annotations[name] = Any
    return annotations


def _read_unpacked(hint: Any) -> dict[str, Parameter]:
    """Return the keys of the TypedDict of ``**options: Unpack[Options]``."""
    if typing.get_origin(hint) is Unpack:
        hint = typing.get_args(hint)[0]
    if not is_typeddict(hint) and not hasattr(hint, "__required_keys__"):
        return {}
    texts = _read_help(hint)
    annotations = typing.get_type_hints(hint, include_extras=True)
    return {name: Parameter(name, kind, OWN, texts.get(name, "")) for name, kind in annotations.items()}


def _read_inherited(target: Any) -> dict[str, Parameter]:
    """Return the arguments that ``**options`` without an annotation accepts: the arguments of the base class."""
    if not inspect.isclass(target):
        return {}
    parent = next((cls for cls in target.__mro__[1:] if "__init__" in vars(cls) and cls is not object), None)
    return {} if parent is None else parameters(parent)


def _read_help(target: Any) -> dict[str, str]:
    """Read help texts from ``Args:`` sections, lists with ``- ``name``: text``, and strings under dataclass fields."""
    text = inspect.getdoc(target) or ""
    if inspect.isclass(target) and target.__init__.__doc__ and "Args:" not in text:  # type: ignore[misc]
        text += "\n" + inspect.cleandoc(target.__init__.__doc__)  # type: ignore[misc]
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        match = re.match(r"^\s*(?:- )?((?:``)?\*{0,2}\w+(?:``)?(?:, (?:``)?\w+(?:``)?)*): (.+)$", line)
        if match:
            names = [name.strip("`* ") for name in match.group(1).split(",")]
            texts |= dict.fromkeys(names, match.group(2))
        elif names and re.match(r"^\s{4,}\S", line):
            texts |= {name: f"{texts[name]} {line.strip()}" for name in names}
        else:
            names = []
    return texts


@dataclass(frozen=True)
class Kind:
    """The type that a deferred call must build. Annotate a parameter with ``Annotated[Call, Kind(base, packages, start)]``.

    Args:
        base: The class that the call must build.
        packages: Packages in which names are looked up. None means :func:`list_packages`.
        start: The class or function to call when a key inside an empty parameter is set.
        takes: If set, accept only objects with an argument of this name.
        given: Names of arguments that the caller of :meth:`Call.build` provides, for this call and the calls nested in it.
            They are not listed as keys, and their defaults are not written to a config.

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
    """Return whether a parameter accepts a deferred call."""
    return get_kind(annotation) is not None


def get_kind(annotation: Any) -> Kind | None:
    """Return the :class:`Kind` in an annotation, in a member of a union or in the entries of a sequence; None if there is none."""
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
    """Return whether an annotation accepts a factory but not an object built by it."""
    options = list_options(annotation)
    return any(_is_callable(option) for option in options) and not any(
        inspect.isclass(option) and option not in PLAIN and not _is_callable(option) for option in options
    )


def list_bases(annotation: Any) -> tuple[Any, ...]:
    """Return the classes whose objects a parameter accepts, and ``object`` for a factory. Plain values add no class."""
    bases: list[Any] = []
    for option in list_options(annotation):
        if _is_callable(option):
            bases.append(object)
        else:
            base = typing.get_origin(option) or option  # Dataset[Tensor] means Dataset
            if inspect.isclass(base) and base not in NOT_BUILT:
                bases.append(base)
    return tuple(bases)


def list_results(annotation: Any) -> tuple[type, ...]:
    """Return the classes that a factory of this annotation builds: ``Callable[..., Module]`` builds a ``Module``.

    A callable that returns tensors counts as a ``Module``, because a file cannot name a plain function of tensors.
    """
    results = []
    for option in list_options(annotation):
        if typing.get_origin(option) is collections.abc.Callable:
            result = typing.get_args(option)[-1]
            results.append(torch.nn.Module if result is torch.Tensor else result)
    return tuple(result for result in results if inspect.isclass(result) and result is not object)


def entry_annotation(annotation: Any) -> Any:
    """Return the annotation of the entries of a sequence, or the annotation itself if it is not a sequence."""
    for option in list_options(annotation):
        if typing.get_origin(option) in SEQUENCES and typing.get_args(option):
            return typing.get_args(option)[0]
    return annotation


def parse(text: str, annotation: Any) -> Any:
    """Parse text of a command line. It stays text if the annotation accepts text; otherwise it is JSON or a Python literal.

    >>> parse("1e-3", float), parse("none", int | None), parse("3,5", tuple[int, ...]), parse("unit", Literal["unit"])
    (0.001, None, (3, 5), 'unit')
    """
    options = list_options(annotation)
    literals = [value for o in options if typing.get_origin(o) is Literal for value in typing.get_args(o)]
    if text in literals:
        return text
    for value in literals:
        if not isinstance(value, str) and text.lower() == str(value).lower():  # Literal[False] may be written false
            return value
    if type(None) in options and text.lower() in ("none", "null"):
        return None
    if bool in options and text.lower() in ("true", "false"):
        return text.lower() == "true"
    value = _read_literal(text)
    if isinstance(value, int | float) and not isinstance(value, bool) and (int in options or float in options):
        return value
    if str in options and "," not in text:
        return text
    if any(typing.get_origin(o) in SEQUENCES or o in SEQUENCES for o in options) and not text.startswith(("[", "(")):
        text = (
            text.replace("x", ",").replace("×", ",") if re.fullmatch(r"\d+([x×]\d+)+", text) else text
        )  # a size such as 112x96
        inner = next((a for o in options for a in typing.get_args(o)[:1]), Any)
        return tuple(parse(part.strip(), inner) for part in text.split(",") if part.strip())
    return text if str in options else value


def check_value(value: Any, annotation: Any, path: str) -> Any:
    """Convert ``value`` to the annotated type: lists to tuples, integers to floats. Raise ``ValueError`` if that is impossible."""
    if not isinstance(value, PLAIN) and not isinstance(value, list | tuple | dict):
        return value  # an object or a call: the target checks it
    for option in list_options(annotation):
        fits, result = _convert(value, option, path)
        if fits:
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


def _convert(value: Any, option: Any, path: str) -> tuple[bool, Any]:
    """Return whether a value fits one member of a union, and the converted value."""
    origin = typing.get_origin(option)
    if origin is Annotated:
        return _convert(value, typing.get_args(option)[0], path)
    if option is Any or isinstance(option, str | typing.TypeVar):
        return True, value
    if origin is Literal:
        return any(value == known and type(value) is type(known) for known in typing.get_args(option)), value
    if option is float:
        return isinstance(value, int | float) and not isinstance(value, bool), float(value) if isinstance(
            value, int
        ) else value
    if option is int:
        whole = isinstance(value, float) and value.is_integer() and math.isfinite(value)
        return (isinstance(value, int) and not isinstance(value, bool)) or whole, int(value) if whole else value
    if option in (bool, str, type(None)):
        return isinstance(value, option), value
    if option in (torch.dtype, torch.device):
        name = value.removeprefix("torch.") if isinstance(value, str) else ""
        result = getattr(torch, name, None) if option is torch.dtype else value
        return isinstance(value, str) and (option is torch.device or isinstance(result, torch.dtype)), result
    if origin in (dict, collections.abc.Mapping) or option is dict:
        return isinstance(value, dict), value
    if origin in SEQUENCES or option in SEQUENCES:
        return _convert_sequence(value, option, path)
    if option is torch.Tensor or "Tensor" in str(option):
        return isinstance(value, list | tuple | float | int) and not isinstance(value, bool), value
    return False, value


def _convert_sequence(value: Any, option: Any, path: str) -> tuple[bool, Any]:
    if not isinstance(value, list | tuple):
        return False, value
    entries = [entry for entry in typing.get_args(option) if entry is not Ellipsis]
    has_fixed_length = typing.get_origin(option) is tuple and Ellipsis not in typing.get_args(option) and entries
    if has_fixed_length and len(value) != len(entries):
        return False, value
    annotations = entries if has_fixed_length else [entries[0] if entries else Any] * len(value)
    try:
        return True, tuple(check_value(item, entry, path) for item, entry in zip(value, annotations, strict=True))
    except ValueError:
        return False, value


def _is_callable(option: Any) -> bool:
    origin = typing.get_origin(option)
    return option is Callable or origin is collections.abc.Callable or getattr(option, "_is_protocol", False)


def _read_literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass  # it may be a Python literal such as (1, 2) or 1_000
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
