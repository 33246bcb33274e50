"""Trees of calls as JSON and back, and the settings in which two of them differ."""

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
    """Return a tree as JSON values: a call is an object with its name under ``call`` and its arguments.

    With ``defaults`` every argument that is left at a plain default is written out, so that the text does not change its
    meaning when a default does; not those that are ``given`` by the surroundings.

    >>> from hypersphere.objectives import ArcFace
    >>> encode(Call(ArcFace, {"m": 0.4}))
    {'call': 'ArcFace', 'm': 0.4}
    """
    if _is_call(value):
        call = as_call(value)
        known = parameters(call.target)
        written = {NAME: spell_target(call.target)}
        for name, parameter in known.items():
            if name in call.arguments or (defaults and name not in given and _plain_default(parameter)):
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

    Without ``trust`` a call may name only what :mod:`hypersphere.config.allow_list` lists, and only in a slot whose
    declared type it builds. A name outside the library (``package.module:name``) is imported only with ``trust``.

    Args:
        value: JSON values.
        parameter: The slot that the value is for.
        path: The name of the slot in messages.
        trust: Run code that the content names. Pass what the outermost caller was given, never a part of the content.

    Raises:
        ValueError: If a name or an argument is unknown or not allowed, or a value has another type.

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
    found = {}
    for key, item in values.items():
        if key == NAME:
            continue
        full = f"{path}.{key}".lstrip(".")
        if key not in known:
            raise ValueError(f"there is no key {full}: {name} has {', '.join(known)}{suggest(key, known)}")
        found[key] = decode(item, known[key], full, trust=trust)
    return found


def remove_locations(value: Any) -> Any:
    """Return a JSON tree in which no name depends on where a class lives or whether it was renamed.

    Names of the library are replaced by the oldest name in ``ALIASES``. Import paths (``module:name``) are left out.

    Args:
        value: What :func:`encode` returned.

    >>> from hypersphere.config import remove_locations
    >>> remove_locations({"call": "my.package:Net", "width": 3})
    {'call': '', 'width': 3}
    """
    if isinstance(value, dict):
        found = {key: remove_locations(item) for key, item in value.items()}
        if isinstance(value.get(NAME), str):
            oldest = {new: old for old, new in reversed(ALIASES.items())}
            found[NAME] = "" if ":" in value[NAME] else oldest.get(value[NAME], value[NAME])
        return found
    return [remove_locations(item) for item in value] if isinstance(value, list) else value


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten a JSON tree into one level with keys joined by dots; the name of a call is the value of its own key.

    >>> flatten({"steps": 3, "head": {"call": "ArcFace", "m": 0.4}})
    {'steps': 3, 'head': 'ArcFace', 'head.m': 0.4}
    """
    found: dict[str, Any] = {}
    for key, item in value.items():
        path = f"{prefix}{key}"
        if isinstance(item, dict):
            found |= {path: item[NAME]} if NAME in item else {}
            found |= flatten({k: v for k, v in item.items() if k != NAME}, f"{path}.")
        elif isinstance(item, list) and any(isinstance(entry, dict) for entry in item):
            found |= flatten({str(i): entry for i, entry in enumerate(item)}, f"{path}.")
        else:
            found[path] = item
    return found


def list_differences(one: Any, other: Any) -> dict[str, tuple[Any, Any]]:
    """List the settings that differ between two trees, by key; None if a tree has no such setting.

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
    """Return what ``name`` stands for in this slot.

    A slot without a declared type takes no call from a file, and a slot with one takes only what builds that type and
    is listed in :mod:`hypersphere.config.allow_list`.
    """
    kind, wanted = get_kind(parameter.annotation), list_bases(parameter.annotation)
    if kind is not None:
        target = look_up(name, kind.base, kind.packages, path, kind.takes)
    elif wanted:
        classes = tuple(base for base in wanted if base is not object)
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


def _plain_default(parameter: Parameter) -> bool:
    default = parameter.default
    if default is MISSING or default is OWN:
        return False
    if _is_call(default):
        return True
    plain = default is None or isinstance(default, bool | int | float | str)
    return plain or (isinstance(default, tuple) and all(isinstance(d, bool | int | float | str) for d in default))
