"""Conversion of trees of calls to JSON and back, and comparison of two trees."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .allow_list import is_constructible
from .calls import Call, _is_call, _order_packages, as_call
from .names import ALIASES, import_target, look_up, spell_target, suggest
from .signatures import (
    MISSING,
    OWN,
    Parameter,
    check_value,
    describe,
    entry_annotation,
    get_kind,
    list_bases,
    list_results,
    parameters,
)

NAME = "call"


def encode(value: Any, *, defaults: bool = False, given: tuple[str, ...] = ()) -> Any:
    """Convert a tree of calls to JSON values. A call becomes an object with its name under ``call`` and its arguments.

    Args:
        value: The tree.
        defaults: Also write arguments that are left at a plain default. The document then keeps its meaning when a
            default changes.
        given: Names of arguments whose defaults are never written, because the caller of :meth:`Call.build` provides them.

    Raises:
        ValueError: If the tree contains an object that is neither a plain value nor a call.

    >>> from hypersphere.objectives import ArcFace
    >>> encode(Call(ArcFace, {"m": 0.4}))
    {'call': 'ArcFace', 'm': 0.4}
    """
    if _is_call(value):
        call = as_call(value)
        known = parameters(call.target)
        written = {NAME: spell_target(call.target)}
        for name, parameter in known.items():
            if name in call.arguments or (defaults and name not in given and _has_plain_default(parameter)):
                inner = check_value(call.get(name), parameter.annotation, name)
                kind = get_kind(parameter.annotation)
                written[name] = encode(inner, defaults=defaults, given=given if kind is None else kind.given)
        return written
    if isinstance(value, tuple | list):
        return [encode(item, defaults=defaults, given=given) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encode(item, defaults=defaults, given=given) for key, item in value.items()}
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f"a config holds numbers, text, lists and calls, got {type(value).__name__}: write call({type(value).__name__}, …)"
    )


def decode(value: Any, parameter: Parameter, path: str, *, trust: bool = False) -> Any:
    """Return the tree that :func:`encode` wrote.

    Without ``trust`` a call may name only objects listed in :mod:`hypersphere.config.allow_list`, and only for a parameter
    whose declared type they build. A name outside the library (``package.module:name``) is imported only with ``trust``.

    Args:
        value: JSON values.
        parameter: The parameter that receives the value.
        path: The name of the parameter in messages.
        trust: Whether to run code that the content names. Pass on the argument of the outermost caller; never take the
            value from the content.

    Raises:
        ValueError: If a name or an argument is unknown or not allowed, or a value has the wrong type.

    >>> from hypersphere.config import Parameter, decode
    >>> slot = Parameter("head", torch.nn.Module, None)
    >>> decode({"call": "ArcFace", "m": 0.4}, slot, "head").build(in_features=8, num_classes=3).margin
    AdditiveAngle(m=0.4)
    >>> decode({"call": "my.package:Head"}, slot, "head")
    Traceback (most recent call last):
    ...
    ValueError: head is 'my.package:Head', code outside hypersphere: it is imported only if you say that you trust it
    """
    if isinstance(value, dict) and NAME in value:
        return _decode_call(value, parameter, path, trust)
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        entry = Parameter(parameter.name, entry_annotation(parameter.annotation), None)
        return tuple(decode(item, entry, f"{path}.{i}", trust=trust) for i, item in enumerate(value))
    return check_value(value, parameter.annotation, path)


def decode_arguments(target: Any, values: Any, path: str = "", *, trust: bool = False) -> dict[str, Any]:
    """Decode the arguments of a call from a JSON object.

    >>> from hypersphere.config import decode_arguments
    >>> decode_arguments(hs.objectives.ArcFace, {"m": 0.4, "scale": 16})
    {'m': 0.4, 'scale': 16.0}
    >>> decode_arguments(hs.objectives.ArcFace, {"scal": 16})
    Traceback (most recent call last):
    ...
    ValueError: there is no key scal: ArcFace has ...; did you mean scale?
    """
    if not isinstance(values, dict):
        raise ValueError(f"{path or 'a config'} must be an object with keys, got {values!r}")
    known = parameters(target)
    name = getattr(target, "__name__", str(target))
    arguments = {}
    for key, item in values.items():
        if key == NAME:
            continue
        full = f"{path}.{key}".lstrip(".")
        if key not in known:
            raise ValueError(f"there is no key {full}: {name} has {', '.join(known)}{suggest(key, known)}")
        arguments[key] = decode(item, known[key], full, trust=trust)
    return arguments


def remove_locations(value: Any) -> Any:
    """Return a JSON tree whose names do not change when a class moves or is renamed.

    Names of the library are replaced by the oldest name in ``ALIASES``. Import paths (``module:name``) become empty.

    Args:
        value: The JSON tree returned by :func:`encode`.

    >>> from hypersphere.config import remove_locations
    >>> remove_locations({"call": "my.package:Net", "width": 3})
    {'call': '', 'width': 3}
    """
    if isinstance(value, dict):
        result = {key: remove_locations(item) for key, item in value.items()}
        if isinstance(value.get(NAME), str):
            oldest = {new: old for old, new in reversed(ALIASES.items())}
            result[NAME] = "" if ":" in value[NAME] else oldest.get(value[NAME], value[NAME])
        return result
    return [remove_locations(item) for item in value] if isinstance(value, list) else value


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten a JSON tree into one level with dotted keys. The key of a call holds the name of the call.

    >>> flatten({"steps": 3, "head": {"call": "ArcFace", "m": 0.4}})
    {'steps': 3, 'head': 'ArcFace', 'head.m': 0.4}
    """
    flat: dict[str, Any] = {}
    for key, item in value.items():
        path = f"{prefix}{key}"
        if isinstance(item, dict):
            flat |= {path: item[NAME]} if NAME in item else {}
            flat |= flatten({k: v for k, v in item.items() if k != NAME}, f"{path}.")
        elif isinstance(item, list) and any(isinstance(entry, dict) for entry in item):
            flat |= flatten({str(i): entry for i, entry in enumerate(item)}, f"{path}.")
        else:
            flat[path] = item
    return flat


def list_differences(one: Any, other: Any) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ between two trees as ``{key: (one, other)}``. None stands for a missing setting.

    >>> from hypersphere.config import call, list_differences
    >>> list_differences(call(hs.objectives.ArcFace, m=0.4), call(hs.objectives.ArcFace, m=0.3))
    {'m': (0.4, 0.3)}
    """
    a, b = ({k: v for k, v in flatten({"": encode(tree, defaults=True)}).items() if k} for tree in (one, other))
    a, b = ({key.removeprefix("."): value for key, value in tree.items()} for tree in (a, b))
    every = [*a, *(key for key in b if key not in a)]
    return {key: (a.get(key), b.get(key)) for key in every if a.get(key) != b.get(key)}


def _decode_call(value: dict[str, Any], parameter: Parameter, path: str, trust: bool) -> Call:
    name = value[NAME]
    if not isinstance(name, str):
        raise ValueError(f"{path} must name what is called, got {name!r}")
    if ":" in name:
        if not trust:
            raise ValueError(
                f"{path} is {name!r}, code outside hypersphere: it is imported only if you say that you trust it"
            )
        target = import_target(name, path)
    else:
        target = _find_target(name, parameter, path, trust)
    return Call(target, decode_arguments(target, value, path, trust=trust))


def _find_target(name: str, parameter: Parameter, path: str, trust: bool) -> Callable[..., Any]:
    """Return the class or function that ``name`` means for this parameter.

    Without ``trust``, a parameter without a declared type accepts no call. A parameter with a declared type accepts only
    objects that build this type and are listed in :mod:`hypersphere.config.allow_list`.
    """
    kind, bases = get_kind(parameter.annotation), list_bases(parameter.annotation)
    if kind is not None:
        target = look_up(name, kind.base, kind.packages, path, kind.takes)
    elif bases:
        classes = tuple(base for base in bases if base is not object)
        target = look_up(
            name, classes or list_results(parameter.annotation) or object, _order_packages(parameter), path
        )
    elif trust:
        target = look_up(name, object, None, path)
    else:
        raise ValueError(f"{path} must be {describe(parameter.annotation)}, got a call of {name!r}")
    if not trust and not is_constructible(target):
        raise ValueError(
            f"{path} is {name!r}, which a file may not construct; if you know who wrote the file, say that you trust it"
        )
    return target


def _has_plain_default(parameter: Parameter) -> bool:
    default = parameter.default
    if default is MISSING or default is OWN:
        return False
    if _is_call(default):
        return True
    plain = default is None or isinstance(default, bool | int | float | str)
    return plain or (isinstance(default, tuple) and all(isinstance(d, bool | int | float | str) for d in default))
