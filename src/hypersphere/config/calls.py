"""Settings as deferred constructor calls, and ``key.path=value`` assignments that change one argument."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..files import is_out_of_memory
from .allow_list import is_constructible
from .names import find_builders, import_target, list_packages, look_up, suggest
from .signatures import (
    SEQUENCES,
    Parameter,
    accepts_callable,
    check_value,
    describe,
    entry_annotation,
    get_kind,
    is_deferred,
    list_bases,
    list_options,
    parameters,
    parse,
)

# Exceptions that a constructor without argument checks raises if an argument is wrong.
WRONG_VALUES = (TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError)


@dataclass(frozen=True)
class Call:
    """A deferred call ``target(**arguments)``, made by :meth:`build`. Arguments may be calls themselves.

    Args:
        target: The class or function to call.
        arguments: Its arguments by name. They are checked against the signature immediately, so a wrong name or type
            raises an error where the ``Call`` is created. A ``functools.partial`` becomes a call.

    Raises:
        ValueError: If an argument is unknown or has the wrong type.

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
            value = as_call(value) if isinstance(value, functools.partial) else value
            checked[name] = check_value(value, known[name].annotation, f"{self.name}.{name}")
        object.__setattr__(self, "arguments", checked)

    @property
    def name(self) -> str:
        """The name of the target."""
        return str(getattr(self.target, "__name__", type(self.target).__name__))

    def get(self, name: str) -> Any:
        """Return the value of an argument, or its default if it is not set.

        Raises:
            ValueError: If the target has no such argument.
        """
        if name in self.arguments:
            return self.arguments[name]
        known = parameters(self.target)
        if name not in known:
            raise ValueError(f"{self.name} has no argument {name}; it has {', '.join(known)}")
        return known[name].default

    def replace(self, changes: Mapping[str, Any] | None = None, /, **more: Any) -> "Call":
        """Return a copy with changed arguments. Dotted keys address the arguments of nested calls.

        >>> from hypersphere.objectives import ArcFace
        >>> Call(ArcFace, {"m": 0.4}).replace({"annealing.floor": 5.0}, scale=20.0).get("annealing").arguments
        {'floor': 5.0}
        """
        return assign(self, {**(changes or {}), **more})

    def build(self, **context: Any) -> Any:
        """Make the call.

        Nested calls are made first. Parameters of the target that are not set are taken from ``context`` by name, such as
        ``num_classes`` for a head or ``model`` for a regularizer.

        Raises:
            ValueError: If a required argument is missing, or the target raises an exception on its arguments.
        """
        known = parameters(self.target)
        arguments = {name: value for name, value in context.items() if name in known}
        arguments |= {name: _build_argument(value, known[name], context) for name, value in self.arguments.items()}
        missing = [name for name, parameter in known.items() if parameter.required and name not in arguments]
        if missing:
            raise ValueError(f"{self.name} needs {', '.join(missing)}: set it, e.g. {missing[0]}=…")
        try:
            return self.target(**arguments)
        except WRONG_VALUES as error:
            if is_out_of_memory(error):
                raise
            written = ", ".join(f"{name}={value!r}"[:60] for name, value in self.arguments.items())
            raise ValueError(
                f"{self.name}({written}) cannot be made: {str(error).splitlines()[0] if str(error) else error!r}"
            ) from error

    def partial(self, **context: Any) -> Callable[..., Any]:
        """Return the target with these arguments bound: a factory of layers or heads."""
        known = parameters(self.target)
        arguments = {name: _build_argument(value, known[name], context) for name, value in self.arguments.items()}
        return functools.partial(self.target, **arguments)


def call(target: Callable[..., Any], /, **arguments: Any) -> Call:
    """Return ``Call(target, arguments)``; the arguments are passed as keywords.

    >>> from hypersphere.objectives import CosFace
    >>> call(CosFace, m=0.2).arguments
    {'m': 0.2}
    """
    return Call(target, arguments)


@dataclass(frozen=True)
class Key:
    """One row of the list of keys: path, current value, accepted values and help text.

    >>> from hypersphere.config import call, keys
    >>> key = next(keys(call(hs.training.StepRate, gamma=0.5)))
    >>> key.path, key.value, key.accepted, key.help
    ('milestones', (), 'a list', 'Steps, counted from the start of the run.')
    """

    path: str
    value: Any
    accepted: str
    help: str


def as_call(value: Any) -> Call:
    """Convert a value to a :class:`Call`.

    A call is returned unchanged. A dataclass instance becomes the call that recreates it, a ``functools.partial`` the call
    that it would make, and a class or function a call without arguments.

    Raises:
        ValueError: If a partial has positional arguments, because settings need a name for each argument.

    >>> from hypersphere.config import as_call
    >>> as_call(hs.training.Selection(classes=16)).replace(per_class=1).build().per_class
    1
    >>> as_call(functools.partial(hs.objectives.ArcFace, m=0.3)).arguments
    {'m': 0.3}
    """
    if isinstance(value, Call):
        return value
    if isinstance(value, functools.partial):
        if value.args:
            raise ValueError(f"a partial of settings takes arguments by name, got {value.args!r} without names")
        return Call(value.func, value.keywords)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return Call(type(value), {field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    assert callable(value)
    return Call(value)


def assign(tree: Call, changes: Iterable[str] | Mapping[str, Any]) -> Call:
    """Return a copy of a tree of calls with some arguments changed.

    Args:
        tree: The call whose arguments change.
        changes: ``key.path=value`` texts, applied in order, or Python values by dotted key. Both forms accept the name of
            a class or function. Python values may also be the class itself, a call or a ``functools.partial``.

    Raises:
        ValueError: If a key is unknown or a value is not accepted. The message names the key.

    >>> from hypersphere.objectives import ArcFace
    >>> assign(Call(ArcFace), ["m=0.4", "annealing.floor=5"]).get("annealing").arguments
    {'floor': 5.0}
    >>> assign(Call(ArcFace), {"m": 0.4, "annealing.floor": 5}).arguments["m"]
    0.4
    >>> assign(Call(ArcFace), ["scal=3"])
    Traceback (most recent call last):
    ...
    ValueError: there is no key scal: ArcFace has ...; did you mean scale?
    """
    if isinstance(changes, Mapping):
        # Assign a nested call before its arguments.
        for key, value in sorted(changes.items(), key=lambda change: change[0].count(".")):
            tree = _assign(tree, key.split("."), value, key)
        return tree
    for assignment in changes:
        key, equals, text = assignment.partition("=")
        if not equals or not key:
            raise ValueError(f"settings are changed by KEY=VALUE, got {assignment!r}")
        tree = _assign(tree, key.split("."), text, key)
    return tree


def keys(tree: Call, prefix: str = "", given: tuple[str, ...] = ()) -> Iterator[Key]:
    """List every key of a tree that can be set, in the order of the signatures.

    Required arguments that are not set, and arguments that :class:`Kind` declares as ``given``, are left out.

    >>> from hypersphere.config import call, keys
    >>> [f"{key.path}={key.value}" for key in keys(call(hs.training.StepRate, gamma=0.5))]
    ['milestones=()', 'gamma=0.5', 'warmup=0']
    """
    for name, parameter in parameters(tree.target).items():
        if name not in tree.arguments and (parameter.required or name in given):
            continue
        value, path = tree.get(name), f"{prefix}{name}"
        inner = as_call(value) if _is_call(value) else None
        accepted = describe_accepted(parameter)
        if _is_sequence(parameter) and (
            get_kind(parameter.annotation) or list_bases(entry_annotation(parameter.annotation))
        ):
            accepted += f"; several are written {path}.0=…, {path}.1=…"
        yield Key(path, value if inner is None else inner.name, accepted, parameter.help)
        if inner is not None:
            kind = get_kind(parameter.annotation)
            yield from keys(inner, f"{path}.", given if kind is None else kind.given)


def describe_accepted(parameter: Parameter) -> str:
    """Describe the values that a parameter accepts: a type, or the names that a settings file may use."""
    kind = get_kind(parameter.annotation)
    bases = [(base, _order_packages(parameter), None) for base in list_bases(parameter.annotation)]
    queries = [(kind.base, kind.packages, kind.takes)] if kind else bases
    builders = [find_builders(base, packages, takes) for base, packages, takes in queries if base is not object]
    names = [name for known in builders for name, builder in known.items() if "." not in name and _is_offered(builder)]
    plain = [
        option for option in list_options(parameter.annotation) if not list_bases(option) and get_kind(option) is None
    ]
    words = [describe(option) for option in plain if option is not Any]
    return ", ".join([*dict.fromkeys(names), *dict.fromkeys(words)]) or describe(parameter.annotation)


def read(value: Any, parameter: Parameter, path: str) -> Any:
    """Convert text or a Python object to a value of a parameter.

    Args:
        value: Text as on the command line, or an object: a plain value, a call, a class, a function or a partial.
        parameter: The parameter.
        path: The name of the parameter in messages.

    Raises:
        ValueError: If the parameter does not accept the value.
    """
    if isinstance(value, str):
        return _read_text(value, parameter, path)
    if isinstance(value, list | tuple) and get_kind(parameter.annotation) is not None:
        entry = Parameter(parameter.name, entry_annotation(parameter.annotation), None)
        return tuple(read(item, entry, f"{path}.{i}") for i, item in enumerate(value))
    if isinstance(value, functools.partial) or (callable(value) and is_deferred(parameter.annotation)):
        return as_call(value) if not isinstance(value, Call) else value
    return check_value(value, parameter.annotation, path)


def _read_text(text: str, parameter: Parameter, path: str) -> Any:
    """Convert text to a plain value if the annotation accepts one, otherwise to a call of the class or function it names."""
    kind = get_kind(parameter.annotation)
    if kind is not None:
        if type(None) in list_options(parameter.annotation) and text.lower() in ("none", "null"):
            return None
        if "," in text and _is_sequence(parameter):
            return read([part.strip() for part in text.split(",")], parameter, path)
        return Call(
            import_target(text, path) if ":" in text else look_up(text, kind.base, kind.packages, path, kind.takes)
        )
    bases = list_bases(parameter.annotation)
    classes = tuple(base for base in bases if base is not object)
    # A public name means the class, even if the annotation also accepts text.
    if classes and text in find_builders(classes, _order_packages(parameter)):
        return Call(look_up(text, classes, _order_packages(parameter), path))
    try:
        return check_value(parse(text, parameter.annotation), parameter.annotation, path)
    except ValueError:
        if not bases or not text.replace(".", "").replace(":", "").isidentifier():
            raise
    return Call(
        import_target(text, path) if ":" in text else look_up(text, classes or object, _order_packages(parameter), path)
    )


def _assign(node: Call, path: list[str], value: Any, full: str) -> Call:
    """Return a copy of ``node`` with the argument at ``path`` changed; ``full`` is the complete key in messages."""
    name, *rest = path
    known = parameters(node.target)
    if name not in known:
        hint = getattr(node.target, "HINTS", {}).get(name)
        also = suggest(name, known) if hint is None else f"; {hint}"
        raise ValueError(f"there is no key {full}: {node.name} has {', '.join(known)}{also}")
    parameter = known[name]
    current = node.arguments.get(name, None if parameter.required else parameter.default)
    result: Any
    if rest and _is_sequence(parameter) and (rest[0].isdigit() or isinstance(current, tuple | list)):
        result = _assign_entry(parameter, current, rest, value, full)
    elif rest:
        result = _assign(_get_inner_call(parameter, current, full, len(rest)), rest, value, full)
    else:
        result = read(value, parameter, full)
    return Call(node.target, {**node.arguments, name: result})


def _assign_entry(parameter: Parameter, current: Any, path: list[str], value: Any, full: str) -> tuple[Any, ...]:
    """Change one entry of a list, or append one. The index may be omitted if the list has exactly one entry."""
    entries = list(current) if isinstance(current, tuple | list) else [] if current is None else [current]
    if not path[0].isdigit():
        if len(entries) != 1:
            parts = full.split(".")
            depth = len(parts) - len(path)
            numbered = ".".join([*parts[:depth], "0", *parts[depth:]])
            raise ValueError(f"{full}: there are {len(entries)} entries, so add an index, such as {numbered}")
        path = ["0", *path]
    index = int(path[0])
    if index > len(entries):
        raise ValueError(f"{full}: there are {len(entries)} entries, so the next is {len(entries)}, got {index}")
    entry = Parameter(parameter.name, entry_annotation(parameter.annotation), None)
    previous = entries[index] if index < len(entries) else None
    if path[1:]:
        changed: Any = _assign(_get_inner_call(entry, previous, full, len(path) - 1), path[1:], value, full)
    else:
        changed = read(value, entry, full)
    return (*entries[:index], changed, *entries[index + 1 :])


def _get_inner_call(parameter: Parameter, current: Any, full: str, depth: int) -> Call:
    """Return the call that a parameter holds; for an empty parameter, a call of its default class."""
    if _is_call(current):
        return as_call(current)
    kind = get_kind(parameter.annotation)
    if kind is not None and kind.start is not None:
        return Call(kind.start)
    for base in list_bases(parameter.annotation):
        known = find_builders(base, _order_packages(parameter)) if inspect.isclass(base) and base is not object else {}  # type: ignore[arg-type]
        if base in known.values() or dataclasses.is_dataclass(base):
            return Call(base)  # type: ignore[arg-type]
    slot = ".".join(full.split(".")[:-depth])
    raise ValueError(f"{full} cannot be set before {slot}, which is {describe_accepted(parameter)}")


def _is_offered(builder: Callable[..., Any]) -> bool:
    """Return whether help texts list a builder: a settings file may construct it, or another package provides it."""
    return is_constructible(builder) or not str(builder.__module__).startswith("hypersphere.")


def _is_call(value: Any) -> bool:
    return isinstance(value, Call) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _is_sequence(parameter: Parameter) -> bool:
    return any(typing.get_origin(option) in SEQUENCES for option in list_options(parameter.annotation))


def _order_packages(parameter: Parameter) -> tuple[str, ...]:
    """Order the packages in which a name is looked up; the package named like the parameter comes first."""
    word = parameter.name.rstrip("s")
    return tuple(sorted(list_packages(), key=lambda package: not package.rpartition(".")[2].startswith(word)))


def _build_argument(value: Any, parameter: Parameter, context: Mapping[str, Any]) -> Any:
    """Convert an argument for the target. A call is passed on, becomes a factory or is made, depending on the annotation."""
    if isinstance(value, tuple | list):
        return type(value)(_build_argument(item, parameter, context) for item in value)
    if not isinstance(value, Call) or is_deferred(parameter.annotation):
        return value
    return value.partial(**context) if accepts_callable(parameter.annotation) else value.build(**context)
