"""The tests' own helpers do what they say."""

import pytest
import torch
import torch.distributed as dist

from tests import distributed, export


def _sum_of_ranks(rank, offset):
    x = torch.tensor([rank + offset])
    dist.all_reduce(x)
    return x


def test_processes_talk_to_each_other():
    assert [x.item() for x in distributed.run(_sum_of_ranks, 10)] == [21, 21]


class _Direction(torch.nn.Module):
    def forward(self, x, w):
        from hypersphere import geometry

        return geometry.cosine(x, w), geometry.arcsin(torch.tanh(x)), geometry.norm(x)


@pytest.mark.untyped
def test_the_geometry_exports_to_onnx():
    x, w = torch.randn(2, 3, 4)
    for exported, eager in zip(export.onnx_outputs(_Direction(), x, w), _Direction()(x, w), strict=True):
        assert torch.allclose(exported, eager, atol=1e-5)
