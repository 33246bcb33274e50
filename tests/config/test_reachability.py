"""Everything that a file may construct can be set from the command line, in the slot where it belongs.

The tests walk through the settings tree from ``Config``. They put every offered name into its slot, and continue with
the slots of the new object. Then they set each argument by text at its key, write the tree as JSON and read it back
without trust.
"""

import functools
import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hypersphere.config import Call, Parameter, as_call, assign, call, list_constructible, parameters, spell_target
from hypersphere.config.calls import _is_sequence, _order_packages
from hypersphere.config.names import find_builders, list_packages, list_public
from hypersphere.config.signatures import (
    accepts_callable,
    entry_annotation,
    get_kind,
    list_bases,
    list_results,
    read_annotations,
)
from hypersphere.data import Digits
from hypersphere.models import mlp
from hypersphere.orthogonal.maps.orthogonal_map import Map
from hypersphere.training import Config, build_task, from_json, to_json

from .test_exports import text_for

# Not settings of a run: inputs of fit, embedder files and pages, which have their own slots, and layers that a file
# names only inside a network.
ELSEWHERE = {
    *("AudioPreprocessing", "FacePreprocessing", "PicturePreprocessing"),  # embedder files
    *("Choice", "Settings", "Term", "Selection", "TuningMethod"),  # fit, and dataclasses inside Config
    "Compose",  # a list in the slot
    *("Conv", "Pool", "Residual"),  # rows of ConvNet
    "he_normal",  # set by init=he
    "MovingAverage",  # set by ema=…
    "SubCenters",  # a measurement
}


def offered(parameter: Parameter) -> dict[str, Callable[..., Any]]:
    """Return the names that a slot accepts and their targets."""
    kind = get_kind(parameter.annotation)
    if kind is not None:
        found = find_builders(kind.base, kind.packages, kind.takes)
    else:
        bases = tuple(base for base in list_bases(parameter.annotation) if base is not object and inspect.isclass(base))
        results = list_results(parameter.annotation) if accepts_callable(parameter.annotation) else ()
        wanted = bases + results
        found = find_builders(wanted, _order_packages(parameter)) if wanted else {}
    plain = {name: target for name, target in found.items() if "." not in name}
    # If two targets have the same name, the second is written with its package.
    return plain | {name: target for name, target in found.items() if target not in plain.values()}


@functools.cache
def walk() -> dict[Callable[..., Any], tuple[str, tuple[str, ...]]]:
    """Map each target to its nearest slot and to the assignments that lead there."""
    found: dict[Callable[..., Any], tuple[str, tuple[str, ...]]] = {}
    queue: deque[tuple[str, Callable[..., Any], tuple[str, ...]]] = deque([("", Config, ())])
    while queue:
        prefix, target, before = queue.popleft()
        for name, parameter in parameters(target).items():
            path = f"{prefix}{name}"
            if _is_sequence(parameter):
                path += ".0"
                entry = entry_annotation(parameter.annotation)
                parameter = Parameter(name, entry, parameter.default)
                if inspect.isclass(entry) and entry.__module__.startswith("hypersphere.training"):  # Term
                    queue.append((f"{path}.", entry, before))
                    continue
            for label, inner in offered(parameter).items():
                if inner in found or inner not in list_constructible():
                    continue
                done = (*before, f"{path}={label}")
                found[inner] = (path, done)
                queue.append((f"{path}.", inner, done))
            for base in list_bases(parameter.annotation):  # dataclasses need no assignment
                if inspect.isclass(base) and hasattr(base, "__dataclass_fields__") and base not in found:
                    found[base] = (path, before)
                    queue.append((f"{path}.", base, before))
    return found


def constructible() -> list[Any]:
    """Return every class and function that a file may name, except ``ELSEWHERE`` and the layers of torch."""
    targets = sorted(list_constructible(), key=spell_target)
    own = [t for t in targets if not t.__module__.startswith("torch.nn")]
    names = {target: spell_target(target) for target in own}
    return [pytest.param(t, id=names[t]) for t in own if names[t].rpartition(".")[2] not in ELSEWHERE]


@pytest.mark.parametrize("target", constructible())
def test_it_has_a_slot_and_every_argument_a_key(target: Callable[..., Any]) -> None:
    assert target in walk(), f"no slot of the settings takes {spell_target(target)}"
    path, before = walk()[target]
    tree = assign(as_call(Config()), before)
    inner: Any = functools.reduce(entry, path.split("."), tree)
    assert as_call(inner).target is target
    for name, parameter in parameters(target).items():
        text = text_for(parameter)
        if text is None:
            continue
        changed = assign(tree, [f"{path}.{name}={text}"])
        value = functools.reduce(entry, path.split("."), changed)
        assert name in as_call(value).arguments, (path, name)


@pytest.mark.parametrize("target", constructible())
def test_a_file_may_name_it_in_this_slot(target: Callable[..., Any]) -> None:
    before = walk()[target][1]
    config = assign(as_call(Config()), before).build()
    text = to_json(config)
    assert to_json(from_json(text)) == text


def entry(value: Any, part: str) -> Any:
    """Return an argument of a call, a field of a dataclass, or an entry of a list."""
    return value[int(part)] if isinstance(value, tuple | list) else as_call(value).get(part)


def test_every_annotation_of_what_is_exported_can_be_read() -> None:
    """An unreadable annotation would silently accept any value and offer no names."""
    unread = []
    for package in list_packages():
        for name, target in list_public(package).items():
            function: Any = target.__init__ if inspect.isclass(target) else target
            while hasattr(function, "__wrapped__"):
                function = function.__wrapped__
            if str(getattr(function, "__module__", "")).startswith("hypersphere"):
                written = {
                    key: hint for key, hint in getattr(function, "__annotations__", {}).items() if hint is not Any
                }
                found = read_annotations(function)
                unread += [
                    f"{package}.{name}: {key}" for key, hint in written.items() if found[key] is Any and hint != "Any"
                ]
    assert unread == []


MAPS = {
    name: target
    for name, target in list_public("hypersphere.orthogonal").items()
    if inspect.isclass(target) and issubclass(target, Map)
}


@pytest.mark.parametrize("name", sorted(set(MAPS) - {"Map"}))
def test_every_map_trains_a_layer_by_its_name(name: str) -> None:
    config = assign(
        call(Config, data=call(Digits), normalize="unit", backbone=call(mlp, hidden=(6,)), batch_size=16),
        [f"orthogonal.method={name}", "orthogonal.start=usual"],
    ).build()
    torch.manual_seed(0)
    task = build_task(config).train()
    loss, _ = task(0, *next(iter(task.loader)))
    loss.backward()
    free = [p for key, p in task.named_parameters() if key.endswith(".raw")]
    assert free
    assert all(p.grad is not None and p.grad.isfinite().all() for p in free)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "Cayley": {"terms": 4},
    "GramSchmidt": {"iterations": 2, "modified": True},
    "Banded": {"width": 2},
    "Lowdin": {},
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_of_a_map_are_keys(name: str) -> None:
    texts = [f"orthogonal.method.{key}={str(value).lower()}" for key, value in ARGUMENTS[name].items()]
    made = assign(as_call(Config()), [f"orthogonal.method={name}", *texts]).get("orthogonal").get("method")
    assert isinstance(made, Call)
    assert made.arguments == ARGUMENTS[name]
    assert isinstance(made.build(), Map)
