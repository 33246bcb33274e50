"""Conversion of text or JSON to values of annotated types, and inspection of annotations."""

import ast
import collections.abc
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch

UNIONS = (types.UnionType, typing.Union)
SEQUENCES = (tuple, list, set, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
PLAIN = (bool, int, float, str, type(None))
NEVER_BUILT = (type, collections.abc.Mapping, collections.abc.Iterator)
NOT_BUILT = (Any, *PLAIN, *SEQUENCES, dict, torch.dtype, torch.device, torch.Tensor)


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
