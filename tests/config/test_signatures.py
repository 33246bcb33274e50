import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from typing_extensions import TypedDict, Unpack

from hypersphere import models
from hypersphere.config import Call, Kind
from hypersphere.config.names import list_packages, list_public
from hypersphere.config.signatures import (
    MISSING,
    OWN,
    accepts_callable,
    check_value,
    describe,
    get_kind,
    is_deferred,
    list_bases,
    list_options,
    parameters,
    parse,
    summary,
)


class Options(TypedDict, total=False):
    """What is passed on.

    - ``depth``: of the network,
        in layers.
    """

    depth: int


class Parent:
    def __init__(self, a: int = 1, b: str = "x"):
        pass


class Child(Parent):
    def __init__(self, a: int = 2, **options: Any):
        super().__init__(a, **options)


@dataclass
class Record:
    """A record.

    Args:
        size: how large it is, which
            takes two lines.
        first, last: ends.
    """

    size: int
    first: list[int] = field(default_factory=lambda: [3])
    last: int = 4


def build(n: int, /, *args: int, width: float = 1.0, **options: Unpack[Options]) -> None:
    """Build it. Then stop.

    More text.
    """


def unreadable(a: "Unknown" = 1, b: int = 2):
    pass


def test_options_are_written_out():
    found = parameters(build)
    assert list(found) == ["width", "depth"]
    assert (found["depth"].annotation, found["depth"].default, found["depth"].required) == (int, OWN, False)
    assert found["depth"].help == "of the network, in layers."


def test_unannotated_options_are_those_of_the_parent():
    found = parameters(Child)
    assert (found["a"].default, found["b"].default) == (2, "x")


def test_dataclasses_and_their_help():
    found = parameters(Record)
    assert found["size"].required
    assert found["size"].default is MISSING
    assert found["size"].help == "how large it is, which takes two lines."
    assert (found["first"].default, found["first"].help, found["last"].help) == ([3], "ends.", "ends.")


def test_one_unreadable_annotation_leaves_the_others():
    found = parameters(unreadable)
    assert (found["a"].annotation, found["b"].annotation) == (Any, int)


def test_summary_and_real_constructors():
    assert summary(build) == "Build it. Then stop."
    assert {"num_classes", "table", "width", "norm"} <= parameters(models.cnn9).keys()
    assert {"lr", "betas", "params"} <= parameters(torch.optim.Adam).keys()
    assert repr(OWN) == "(its own)"


def test_every_annotation_of_an_exported_class_or_function_can_be_resolved():
    """An unresolved annotation would be read as ``Any``, and settings could not reach the argument."""
    unresolved = []
    for package in [name for name in list_packages() if name.startswith("hypersphere")]:
        for value in list_public(package).values():
            function = value.__init__ if inspect.isclass(value) else value
            while hasattr(function, "__wrapped__"):
                function = function.__wrapped__
            for name, hint in getattr(function, "__annotations__", {}).items():
                holder = types.SimpleNamespace(__annotations__={name: hint}, __module__=function.__module__)
                try:
                    typing.get_type_hints(holder, getattr(function, "__globals__", None))
                except (NameError, TypeError) as error:
                    unresolved.append(f"{package}.{value.__name__}.{name}: {error}")
    assert unresolved == []


Slot = Annotated[Call, Kind(nn.Module)]


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("3", int, 3),
        ("1e3", int, 1000),
        ("1e-3", float, 0.001),
        ("inf", float, float("inf")),
        ("none", float | None, None),
        ("true", bool, True),
        ("3", str, "3"),
        ("a,b", tuple[str, ...], ("a", "b")),
        ("[1, 2]", tuple[int, int], (1, 2)),
        ("(1, 2)", int | tuple[int, int], (1, 2)),
        ("7", tuple[int, ...], (7,)),
        ("unit", Literal["unit", "none"], "unit"),
        ("none", Literal["unit", "none"] | None, "none"),
        ("float16", torch.dtype, torch.float16),
        ('{"a": 1}', Mapping[str, float], {"a": 1}),
        ("0.5", float | Literal["norms"], 0.5),
        ("32", int | tuple[int, int], 32),
        ("32,16", int | tuple[int, int], (32, 16)),
        ("folder", str | tuple[Any, Any], "folder"),
        ("norms", float | Literal["norms"], "norms"),
        ("False", Literal["filter", False], False),
        ("0.1,0.2", Tensor | list[float], (0.1, 0.2)),
    ],
)
def test_text_becomes_what_the_annotation_says(text, annotation, value):
    if text == "inf":
        assert check_value(parse("Infinity", annotation), annotation, "x") == value
    else:
        assert check_value(parse(text, annotation), annotation, "x") == value


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        ("x", int, "x must be an integer, got 'x'"),
        (2.5, int, "x must be an integer, got 2.5"),
        (True, int, "x must be an integer, got True"),
        (1, bool, "x must be true or false, got 1"),
        ("batch", Literal["none"], "x must be 'none', got 'batch'"),
        ([1, 2, 3], tuple[int, int], r"x must be a list, got \[1, 2, 3\]"),
        (["a"], tuple[int, ...], "x must be a list"),
        (3, str | None, "x must be text or none, got 3"),
        ("complex999", torch.dtype, "x must be a dtype"),
    ],
)
def test_what_does_not_fit_is_named(value, annotation, message):
    with pytest.raises(ValueError, match=message):
        check_value(value, annotation, "x")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
@pytest.mark.parametrize("annotation", [int, float | None, Literal["a"], tuple[int, ...], str])
def test_any_value_fits_or_is_refused(annotation, value):
    problem = ""
    try:
        check_value(value, annotation, "x")
    except ValueError as error:
        problem = str(error)
    assert not problem or problem.startswith("x must be ")


@given(st.text())
def test_any_text_parses(text):
    for annotation in (int, float | None, Literal["a"], tuple[int, ...], str, bool):
        parse(text, annotation)


def test_slots_and_classes():
    assert is_deferred(Slot)
    assert is_deferred(Slot | None)
    assert is_deferred(tuple[Slot, ...])
    assert not is_deferred(nn.Module | None)
    assert get_kind(Slot | None) == Kind(nn.Module)
    assert list_bases(nn.Module | None) == (nn.Module,)
    assert list_bases(Callable[..., nn.Module] | None) == (object,)
    assert list_bases(float | str) == ()
    assert list_bases(Any) == ()
    assert accepts_callable(Callable[..., Any] | None)
    assert not accepts_callable(nn.Module | Callable[..., Any])
    assert list_options(int | None) == (int, type(None))
    assert describe(Slot) == "the name of something to call"
    assert describe(Callable[..., Any]) == "the name of a class or function"
    assert describe(Iterable[int] | None) == "a list or none"
