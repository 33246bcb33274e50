"""``key.path=value``: change one argument somewhere in a tree of calls, and list every key there is."""

import dataclasses
import inspect
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .calls import Call
from .names import find_builders, import_target, list_packages, look_up, suggest
from .signatures import MISSING, Parameter, parameters
from .values import SEQUENCES, check_value, describe, get_kind, list_bases, list_options, parse


@dataclass(frozen=True)
class Key:
    """One line of the list of keys: where, what is there now, what is accepted, and what it means.

    >>> from hypersphere.config import call, keys
    >>> key = next(keys(call(hs.training.StepRate, gamma=0.5)))
    >>> key.path, key.value, key.accepted, key.help
    ('milestones', (), 'a list', 'steps, counted from the start of the run.')
    """

    path: str
    value: Any
    accepted: str
    help: str


def as_call(value: Any) -> Call:
    """A call as it is, or the call that makes a dataclass.

    >>> from hypersphere.config import as_call
    >>> as_call(hs.training.Images(size=16)).replace(channels=1).build()
    Images(size=16, channels=1, crop=None, normalize='deviation', mirror=False)
    """
    if isinstance(value, Call):
        return value
    assert dataclasses.is_dataclass(value)
    assert not isinstance(value, type)
    return Call(type(value), {field.name: getattr(value, field.name) for field in dataclasses.fields(value)})


def assign(tree: Call, assignments: Iterable[str]) -> Call:
    """The tree with ``key.path=value`` carried out one after the other; a wrong key or value is a ``ValueError`` naming it.

    >>> from hypersphere.objectives import ArcFace
    >>> assign(Call(ArcFace), ["m=0.4", "annealing.floor=5"]).arguments
    {'m': 0.4, 'annealing': Call(target=<class 'hypersphere.objectives.annealing.Annealing'>, arguments={'floor': 5.0})}
    >>> assign(Call(ArcFace), ["scal=3"])
    Traceback (most recent call last):
    ...
    ValueError: there is no key scal: ArcFace has ...; did you mean scale?
    """
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key:
            raise ValueError(f"settings are changed by KEY=VALUE, got {assignment!r}")
        tree = _assign(tree, key.split("."), text, key)
    return tree


def keys(tree: Call, prefix: str = "", given: tuple[str, ...] = ()) -> Iterator[Key]:
    """Every key of a tree that can be set now, in the order of the signatures.

    Arguments that come from the surroundings are left out: those that a slot says are ``given``, and required ones.

    >>> from hypersphere.config import call, keys
    >>> [f"{key.path}={key.value}" for key in keys(call(hs.training.StepRate, gamma=0.5))]
    ['milestones=()', 'gamma=0.5', 'warmup=0']
    """
    for name, parameter in parameters(tree.target).items():
        if name not in tree.arguments and (parameter.required or name in given):
            continue
        value, path = tree.get(name), f"{prefix}{name}"
        inner = as_call(value) if _is_call(value) else None
        shown = inner.name if inner is not None else value
        yield Key(path, shown, describe_accepted(parameter), parameter.help)
        if inner is not None:
            kind = get_kind(parameter.annotation)
            yield from keys(inner, f"{path}.", given if kind is None else kind.given)


def describe_accepted(parameter: Parameter) -> str:
    """What a parameter takes, in words: a type, or the names there are."""
    kind = get_kind(parameter.annotation)
    found = [(base, _order_packages(parameter), None) for base in list_bases(parameter.annotation)]
    wanted = [(kind.base, kind.packages, kind.takes)] if kind else found
    named = [find_builders(base, packages, takes) for base, packages, takes in wanted if base is not object]
    names = [name for known in named for name in known if "." not in name]
    plain = [
        option for option in list_options(parameter.annotation) if not list_bases(option) and get_kind(option) is None
    ]
    words = [describe(option) for option in plain if option is not Any]
    return ", ".join([*dict.fromkeys(names), *dict.fromkeys(words)]) or describe(parameter.annotation)


def _assign(node: Call, path: list[str], text: str, full: str) -> Call:
    name, *rest = path
    known = parameters(node.target)
    if name not in known:
        raise ValueError(f"there is no key {full}: {node.name} has {', '.join(known)}{suggest(name, known)}")
    parameter = known[name]
    current = node.arguments.get(name, None if parameter.required else parameter.default)
    value: Any
    if rest and rest[0].isdigit() and _is_sequence(parameter):
        value = _entry(parameter, current, rest, text, full)
    elif rest:
        value = _assign(_inner(parameter, current, full, len(rest)), rest, text, full)
    else:
        value = read(text, parameter, full)
    return Call(node.target, {**node.arguments, name: value})


def read(text: str, parameter: Parameter, path: str) -> Any:
    """The value that text stands for: a plain value where the annotation takes one, else the call of a name."""
    kind = get_kind(parameter.annotation)
    if kind is not None:
        if type(None) in list_options(parameter.annotation) and text.lower() in ("none", "null"):
            return None
        return Call(
            import_target(text, path) if ":" in text else look_up(text, kind.base, kind.packages, path, kind.takes)
        )
    wanted = list_bases(parameter.annotation)
    classes = tuple(base for base in wanted if base is not object)
    if classes and text in find_builders(
        classes, _order_packages(parameter)
    ):  # where text is accepted too, a public name is the class
        return Call(look_up(text, classes, _order_packages(parameter), path))
    try:
        return check_value(parse(text, parameter.annotation), parameter.annotation, path)
    except ValueError:
        if not wanted or not text.replace(".", "").replace(":", "").isidentifier():
            raise
    return Call(
        import_target(text, path) if ":" in text else look_up(text, classes or object, _order_packages(parameter), path)
    )


def _entry(parameter: Parameter, current: Any, path: list[str], text: str, full: str) -> tuple[Any, ...]:
    """One entry of a list, changed, or added behind the last."""
    entries, index = list(current or ()), int(path[0])
    if index > len(entries):
        raise ValueError(f"{full}: there are {len(entries)} entries, so the next is {len(entries)}, got {index}")
    hint = next(a for o in list_options(parameter.annotation) for a in typing.get_args(o)[:1])
    one = Parameter(parameter.name, hint, None)
    before = entries[index] if index < len(entries) else None
    value = (
        _assign(_inner(one, before, full, len(path) - 1), path[1:], text, full) if path[1:] else read(text, one, full)
    )
    return (*entries[:index], value, *entries[index + 1 :])


def _inner(parameter: Parameter, current: Any, full: str, depth: int) -> Call:
    """The call inside a parameter: the one that is there, or the one natural choice for an empty slot."""
    if _is_call(current):
        return as_call(current)
    kind, wanted = get_kind(parameter.annotation), list_bases(parameter.annotation)
    if kind is not None and kind.start is not None:
        return Call(kind.start)
    for base in wanted:
        known = find_builders(base, _order_packages(parameter)) if inspect.isclass(base) and base is not object else {}  # type: ignore[arg-type]
        if base in known.values():
            return Call(base)
        if dataclasses.is_dataclass(base):
            return Call(base)  # type: ignore[arg-type]
    slot = ".".join(full.split(".")[:-depth])
    raise ValueError(f"{full} cannot be set before {slot}, which is {describe_accepted(parameter)}")


def _is_call(value: Any) -> bool:
    return isinstance(value, Call) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _is_sequence(parameter: Parameter) -> bool:
    return any(typing.get_origin(option) in SEQUENCES for option in list_options(parameter.annotation))


def _order_packages(parameter: Parameter) -> tuple[str, ...]:
    """Rooms in which a name is looked for: first the one that is called as the parameter is."""
    word = parameter.name.rstrip("s")
    return tuple(sorted(list_packages(), key=lambda package: not package.rpartition(".")[2].startswith(word)))


__all__ = ["MISSING", "Key", "as_call", "assign", "describe_accepted", "keys", "read"]
