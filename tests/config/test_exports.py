"""Every exported class and function can be set from the command line, argument by argument.

The exports are the test cases, so a new export is covered without a change here.
"""

import dataclasses
import inspect
import json
import typing
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch

from hypersphere.config import Call, Parameter, assign, decode, encode, parameters
from hypersphere.config.names import list_packages, list_public, spell_target
from hypersphere.config.signatures import SEQUENCES, list_options

OWN = [
    package for package in list_packages() if package not in ("torch.nn",)
]  # parts, models, data, augmentation, training, optimizers


def text_for(parameter: Parameter) -> str | None:
    """Return a text that the argument accepts by its annotation, or None if it accepts only objects."""
    for option in list_options(parameter.annotation):
        origin = typing.get_origin(option)
        if origin is Literal:
            return str(typing.get_args(option)[0])
        if option is bool:
            return "true"
        if option is int:
            return "3"
        if option is float:
            return "0.5"
        if option is str:
            return "word"
        if option is torch.dtype:
            return "float32"
        if origin in SEQUENCES:
            inner = [kind for kind in typing.get_args(option) if kind is not Ellipsis] or [float]
            if typing.get_origin(inner[0]) in SEQUENCES:
                continue  # lists of lists are written as JSON, entries as key.0.name
            one = text_for(Parameter("x", inner[0], None))
            fixed = origin is tuple and Ellipsis not in typing.get_args(option)
            return None if one is None else ",".join([one] * (len(inner) if fixed else 1))
    if type(None) in list_options(parameter.annotation):
        return "none"
    return None


def exported() -> list[Any]:
    """Return every exported class and function that has arguments."""
    found = []
    for package in OWN:
        for name, target in list_public(package).items():
            if getattr(target, "_is_protocol", False) or inspect.isabstract(target) or typing.is_typeddict(target):
                continue
            if not parameters(target) or target.__module__.startswith("hypersphere.config"):
                continue
            found.append(pytest.param(target, id=f"{package.removeprefix('hypersphere.')}.{name}"))
    return found


@pytest.mark.parametrize("target", exported())
def test_one_argument_is_set_by_text_and_survives_json(target: Callable[..., Any]) -> None:
    texts = {name: text_for(parameter) for name, parameter in parameters(target).items()}
    settable = {name: text for name, text in texts.items() if text is not None}
    objects = [name for name in texts if name not in settable]
    if not settable:
        # accepts only objects such as modules and tensors, so no argument may be a plain value
        plain = {int, float, bool, str}
        assert not any(plain & set(list_options(p.annotation)) for p in parameters(target).values())
        return
    for name, text in settable.items():
        made = assign(Call(target), [f"{name}={text}"])
        assert name in made.arguments, (name, text)
        document = json.loads(json.dumps(encode(made)))
        slot = Parameter("x", Any, None)
        again = decode(document, slot, "x", trust=True)
        assert again.target is target or spell_target(again.target) == spell_target(target)
        assert encode(again) == document
    assert len(objects) < len(texts)


@pytest.mark.parametrize("target", exported())
def test_a_wrong_argument_gets_the_nearest(target: Callable[..., Any]) -> None:
    name = max(parameters(target), key=len)
    wrong = f"{name}x"
    if wrong in parameters(target):
        pytest.skip("that is another argument")
    with pytest.raises(ValueError, match=rf"there is no key {wrong}: .*; did you mean \w+\?"):
        assign(Call(target), [f"{wrong}=1"])


def test_every_public_class_of_the_parts_is_there() -> None:
    """Every public class of the four parts is exported by a package in which names are looked up."""
    import hypersphere

    for part in ("objectives", "operators", "energy", "orthogonal"):
        module = getattr(hypersphere, part)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                assert any(list_public(package).get(name) is value for package in list_packages()), name


def test_dataclasses_are_calls_too() -> None:
    from hypersphere.training import Config, Settings

    for kind in (Config, Settings):
        assert {field.name for field in dataclasses.fields(kind)} == parameters(kind).keys()
