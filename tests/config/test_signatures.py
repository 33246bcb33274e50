import inspect
import types
import typing
from dataclasses import dataclass, field
from typing import Any

import torch
from typing_extensions import TypedDict, Unpack

from hypersphere import models
from hypersphere.config.names import list_packages, list_public
from hypersphere.config.signatures import MISSING, OWN, parameters, summary


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
