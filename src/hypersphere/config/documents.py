"""Trees of calls as JSON and back, and the settings in which two of them differ."""

from collections.abc import Mapping
from typing import Any

import torch

from .calls import Call
from .keys import _is_call, _rooms, as_call
from .names import ROOMS, imported, lookup, nearest, spelled
from .signatures import MISSING, OWN, Parameter, parameters
from .values import bases, check_value, kind_of

NAME = "call"


def encode(value: Any, *, defaults: bool = False, given: tuple[str, ...] = ()) -> Any:
    """JSON values for a tree: a call is an object with the name under ``call`` beside its arguments.

    With ``defaults`` every argument that is left at a plain default is written out, so that the text does not change its
    meaning when a default does; not those that are ``given`` by the surroundings.

    >>> from hypersphere.objectives import ArcFace
    >>> encode(Call(ArcFace, {"m": 0.4}))
    {'call': 'ArcFace', 'm': 0.4}
    """
    if _is_call(value):
        call = as_call(value)
        known = parameters(call.target)
        written = {NAME: spelled(call.target)}
        for name, parameter in known.items():
            if name in call.arguments or (defaults and name not in given and _plain_default(parameter)):
                inner = check_value(call.get(name), parameter.annotation, name)
                kind = kind_of(parameter.annotation)
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
    """The tree that :func:`encode` wrote.

    A name outside the library (``package.module:name``) is imported only with ``trust``: whoever wrote the file decides
    which code runs. Unknown names and arguments, and values of another type, are a ``ValueError`` that names them.

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
        return _call(value, parameter, path, trust)
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return tuple(decode(item, parameter, f"{path}.{i}", trust=trust) for i, item in enumerate(value))
    return check_value(value, parameter.annotation, path)


def decode_arguments(target: Any, values: Any, path: str = "", *, trust: bool = False) -> dict[str, Any]:
    """The arguments of a call from a JSON object.

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
            raise ValueError(f"there is no key {full}: {name} has {', '.join(known)}{nearest(key, known)}")
        found[key] = decode(item, known[key], full, trust=trust)
    return found


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """A JSON tree as one level, keys joined by dots; a call's name stands under its own key.

    >>> flat({"steps": 3, "head": {"call": "ArcFace", "m": 0.4}})
    {'steps': 3, 'head': 'ArcFace', 'head.m': 0.4}
    """
    found: dict[str, Any] = {}
    for key, item in value.items():
        path = f"{prefix}{key}"
        if isinstance(item, dict):
            found |= {path: item[NAME]} if NAME in item else {}
            found |= flat({k: v for k, v in item.items() if k != NAME}, f"{path}.")
        elif isinstance(item, list) and any(isinstance(entry, dict) for entry in item):
            found |= flat({str(i): entry for i, entry in enumerate(item)}, f"{path}.")
        else:
            found[path] = item
    return found


def differences(one: Any, other: Any) -> dict[str, tuple[Any, Any]]:
    """The settings that differ between two trees, by key; None stands where one has no such setting.

    >>> from hypersphere.config import call, differences
    >>> differences(call(hs.objectives.ArcFace, m=0.4), call(hs.objectives.ArcFace, m=0.3))
    {'m': (0.4, 0.3)}
    """
    a, b = ({k: v for k, v in flat({"": encode(tree, defaults=True)}).items() if k} for tree in (one, other))
    a, b = ({key.removeprefix("."): value for key, value in tree.items()} for tree in (a, b))
    every = [*a, *(key for key in b if key not in a)]
    return {key: (a.get(key), b.get(key)) for key in every if a.get(key) != b.get(key)}


def _call(value: dict[str, Any], parameter: Parameter, path: str, trust: bool) -> Call:
    name = value[NAME]
    if not isinstance(name, str):
        raise ValueError(f"{path} must name what is called, got {name!r}")
    kind, wanted = kind_of(parameter.annotation), bases(parameter.annotation)
    if ":" in name:
        if not trust:
            raise ValueError(
                f"{path} is {name!r}, code outside hypersphere: it is imported only if you say that you trust it"
            )
        target = imported(name, path)
    elif kind is not None:
        target = lookup(name, kind.base, kind.rooms, path, kind.takes)
    elif wanted:
        target = lookup(name, wanted if object not in wanted else object, _rooms(parameter), path)
    else:
        target = lookup(name, object, ROOMS, path)
    return Call(target, decode_arguments(target, value, path, trust=trust))


def _plain_default(parameter: Parameter) -> bool:
    default = parameter.default
    if default is MISSING or default is OWN:
        return False
    if _is_call(default):
        return True
    plain = default is None or isinstance(default, bool | int | float | str)
    return plain or (isinstance(default, tuple) and all(isinstance(d, bool | int | float | str) for d in default))
