"""Tests of the tests' own helpers."""

from collections.abc import Callable
from typing import Literal

import jaxtyping
import pytest
import torch
import torch.distributed as dist
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from tests import distributed, export, typecheck


def _sum_of_ranks(rank, offset):
    x = torch.tensor([rank + offset])
    dist.all_reduce(x)
    return x


def test_processes_talk_to_each_other():
    assert [x.item() for x in distributed.run(_sum_of_ranks, 10)] == [21, 21]


@pytest.mark.parametrize(
    ("annotation", "found"),
    [
        (Float[Tensor, "n d"], True),
        (Float[Tensor, "n d"] | None, True),
        (Callable[[Float[Tensor, "n"]], int], True),
        (tuple[int, list[Float[Tensor, "n"]]], True),
        ("Tensor", True),
        (list["Tensor"], True),
        (Literal["a", "b"] | None, False),
        (Tensor, False),
        (Callable[..., Tensor], False),
        (dict[str, list[int]] | None, False),
    ],
)
def test_shapes_are_found_anywhere_in_an_annotation(annotation, found):
    assert typecheck.shaped(annotation) == found


def test_types_are_checked_with_and_without_shapes():
    def plain(x: int, *, name: str = "") -> float:
        return name or x

    def formed(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        return x + y

    plain, formed = (typecheck.typed(typechecker=typecheck.check)(function) for function in (plain, formed))
    assert plain(3) == 3
    assert formed(torch.ones(2), torch.ones(2)).tolist() == [2, 2]
    for wrong in (lambda: plain("a"), lambda: plain(3, name="b"), lambda: formed(torch.ones(2), torch.ones(3))):
        with pytest.raises((BeartypeCallHintViolation, TypeCheckError)):
            wrong()
    jaxtyping.config.update("jaxtyping_disable", True)  # as for tests marked untyped
    assert plain("a") == "a"


class _Direction(torch.nn.Module):
    def forward(self, x, w):
        from hypersphere import geometry

        return geometry.cosine(x, w), geometry.arcsin(torch.tanh(x)), geometry.norm(x)


@pytest.mark.untyped
def test_the_geometry_exports_to_onnx():
    x, w = torch.randn(2, 3, 4)
    for exported, eager in zip(export.onnx_outputs(_Direction(), x, w), _Direction()(x, w), strict=True):
        assert torch.allclose(exported, eager, atol=1e-5)
