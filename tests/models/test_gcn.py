from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hypersphere import models

from .contract import ModelContract, layers_of

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 2], [1, 2, 3, 0, 2, 5, 4]])


class TestGCN(ModelContract):
    small: ClassVar = {"width": 1 / 4, "in_features": 12, "dropout": 0.0}
    feature_dim = 4
    sphere_conv = None
    norm = None
    build = staticmethod(models.gcn)

    def inputs(self, batch=7):
        x = torch.randn(batch, 12, generator=torch.Generator().manual_seed(1))
        return x, models.normalized_adjacency(EDGES, batch)


class TestDeeperGCN(TestGCN):
    """Two hidden layers, with normalization."""

    small: ClassVar = {**TestGCN.small, "hidden": (16, 16), "norm": nn.BatchNorm1d}
    norm = nn.BatchNorm1d


def dense_adjacency(edges, nodes):
    """Return D̃^{−1/2} Ã D̃^{−1/2}, computed in float64 by numpy, entry by entry."""
    a = np.eye(nodes)
    for i, j in edges.T.tolist():
        a[i, j] = a[j, i] = 1
    d = a.sum(1)
    return np.array([[a[i, j] / np.sqrt(d[i] * d[j]) for j in range(nodes)] for i in range(nodes)])


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
    )
)
def test_the_adjacency_against_numpy(graph):
    nodes, pairs = graph
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
    found = models.normalized_adjacency(edges, nodes, dtype=torch.float64)
    assert found.is_coalesced()
    assert np.abs(found.to_dense().numpy() - dense_adjacency(edges, nodes)).max() <= 1e-12


def test_the_largest_eigenvalue_is_one():
    """The exponent −1/2 bounds the eigenvalues; with the printed +1/2 they grow with the degrees."""
    values = torch.linalg.eigvalsh(models.normalized_adjacency(EDGES, 6, dtype=torch.float64).to_dense())
    assert values.max().item() == pytest.approx(1, abs=1e-12)
    assert values.min() > -1


def test_the_forward_model_of_e_10_in_float64():
    net = models.gcn(3, in_features=5, hidden=(4,)).double().eval()
    x = torch.randn(6, 5, dtype=torch.float64)
    a = dense_adjacency(EDGES, 6)
    w0, w1 = (m.weight.detach().numpy() for m in net.modules() if isinstance(m, nn.Linear))
    bias = net.classifier.bias.detach().numpy()
    reference = a @ np.maximum(a @ x.numpy() @ w0.T, 0) @ w1.T + bias
    found = net(x, models.normalized_adjacency(EDGES, 6, dtype=torch.float64))
    assert np.abs(found.detach().numpy() - reference).max() <= 1e-12


def test_agrees_with_torch_geometric():
    geometric = pytest.importorskip("torch_geometric.nn")
    net = models.gcn(3, in_features=5, hidden=(4,)).eval()
    both = torch.cat([EDGES, EDGES.flip(0)], dim=1)
    first, second = geometric.GCNConv(5, 4, bias=False), geometric.GCNConv(4, 3)
    first.lin.weight.data = layers_of(net, nn.Linear)[0].weight.data
    second.lin.weight.data, second.bias.data = net.classifier.weight.data, net.classifier.bias.data
    x = torch.randn(6, 5)
    expected = second(first(x, both).relu(), both)
    assert torch.allclose(net(x, models.normalized_adjacency(EDGES, 6)), expected, atol=1e-6)


def test_the_network_of_the_text():
    net = models.gcn()
    assert [tuple(m.weight.shape) for m in net.modules() if isinstance(m, nn.Linear)] == [(16, 1433), (7, 16)]
    assert layers_of(net, nn.Linear)[0].bias is None
    assert net.dropout.p == 0.5


def test_dropout_is_for_training():
    net = models.gcn(3, in_features=5)
    x, a = torch.randn(6, 5), models.normalized_adjacency(EDGES, 6)
    assert not torch.equal(net(x, a), net(x, a))
    net.eval()
    assert torch.equal(net(x, a), net(x, a))


@pytest.mark.parametrize("edges", [[[0], [6]], [[-1], [0]]])
def test_refuses_unknown_nodes(edges):
    with pytest.raises(ValueError, match="edges must name nodes from 0 to 5"):
        models.normalized_adjacency(torch.tensor(edges), 6)
