import inspect

import numpy as np
import pytest
import torch

from hypersphere import objectives
from hypersphere.objectives import ArcFace, CosFace, LSoftmax, MarginSoftmax, SphereFaceR
from hypersphere.objectives.head_options import HeadOptions, list_arguments


def test_the_list_arguments_are_those_of_the_signature():
    accepted = list_arguments(LSoftmax)
    assert accepted[:3] == ["in_features", "num_classes", "m"]
    assert set(HeadOptions.__annotations__) < set(accepted)
    assert "scale" not in accepted


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (LSoftmax, {"scale": 30.0}, "LSoftmax takes no argument 'scale'; it takes in_features, num_classes, m,"),
        (CosFace, {"s": 64}, "no argument 's' \\(it is called scale here\\)"),
        (ArcFace, {"margin": 0.5}, "no argument 'margin' \\(it is called m here\\)"),
        (MarginSoftmax, {"typo": 1}, "MarginSoftmax takes no argument 'typo'; it takes"),
    ],
)
def test_an_unknown_argument_is_refused_with_the_known_ones(kind, given, message):
    with pytest.raises(TypeError, match=message):
        kind(4, 3, **given)


def test_a_class_of_ones_own_may_take_anything():
    class Own(MarginSoftmax):
        def __init__(self, in_features, num_classes, **anything):
            super().__init__(in_features, num_classes, scale=float(anything["colour"]))

    assert Own(4, 3, colour=7).scale == 7


@pytest.mark.parametrize(
    ("kind", "given", "messages"),
    [
        (CosFace, {"m": 64, "scale": 0.35}, ["0.1 to 0.5 are usual", "m and scale swapped"]),
        (ArcFace, {"m": 1.5}, ["0.2 to 0.5 rad are usual"]),
        (LSoftmax, {"m": 20}, ["1.5 to 4 are usual"]),
    ],
)
def test_absurd_numbers_warn(kind, given, messages):
    with pytest.warns(UserWarning, match="usual") as caught:
        kind(4, 3, **given)
    for message in messages:
        assert any(message in str(w.message) for w in caught)


@pytest.mark.untyped
def test_arrays_are_refused_with_the_way_to_make_tensors():
    head = ArcFace(4, 3)
    with pytest.raises(
        TypeError, match=r"features must be a torch tensor.*got ndarray; convert it by torch.as_tensor\(features\)"
    ):
        head(np.zeros((2, 4)), torch.tensor([0, 1]))
    with pytest.raises(TypeError, match="labels must be a torch tensor"):
        head(torch.zeros(2, 4), np.array([0, 1]))
    with pytest.raises(TypeError, match="features must be a torch tensor"):
        head.logits([[0.0] * 4])


HEADS = [value for value in vars(objectives).values() if isinstance(value, type) and issubclass(value, MarginSoftmax)]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_the_signature_and_the_docstring_name_every_argument(head):
    parameters = inspect.signature(head).parameters
    assert set(HeadOptions.__annotations__) <= set(parameters)
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values())
    section = inspect.getdoc(head).partition("\nArgs:\n")[2].partition("\n\n")[0]
    documented = [line.strip().partition(":")[0] for line in section.splitlines() if line[4] != " "]
    assert documented == list(parameters)


def test_the_signature_has_the_defaults_that_are_used():
    assert inspect.signature(SphereFaceR).parameters["gradient"].default == SphereFaceR(4, 3).gradient == "detached"
    assert inspect.signature(ArcFace).parameters["gradient"].default == ArcFace(4, 3).gradient == "exact"
