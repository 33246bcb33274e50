"""Graph convolutional network for node classification (7.5.4, E.10)."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .blocks import Init, LayerFactory, Layers
from .network import Network


class GCN(Network):
    r"""``Z = Â·ReLU(Â·X·W₀)·W₁``, without the softmax; ``Â = D̃^{−1/2} Ã D̃^{−1/2}`` of :func:`normalized_adjacency` (E.10).

    The features of a node are its row of ``Â·ReLU(Â·X·W₀)``, so that the classifier W₁ is an ordinary last layer. Hidden layers act on a
    node's own features before they are averaged, without a bias. Dropout is on the input of each layer, in training only. Hidden width,
    dropout and Glorot initialisation are those of the implementation the text follows.

    Args:
        num_classes: None makes it a feature extractor.
        in_features: of a node: 1433 for Cora, 3703 for Citeseer, 500 for Pubmed.
        hidden: neurons of the hidden layers.
        dropout: probability.
        linear: layer factory with the signature of ``nn.Linear``.
        norm: neurons → normalization, e.g. ``nn.BatchNorm1d``.
        activation: a factory, or None.
        init: draws a weight in place; None for the layer's own initialisation.
        width: multiplies the hidden widths.
        classifier: ``(feature_dim, num_classes) → module``.

    >>> adjacency = normalized_adjacency(torch.tensor([[0, 1, 2], [1, 2, 3]]), nodes=5)
    >>> GCN(3, in_features=4)(torch.ones(5, 4), adjacency).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        num_classes: int | None = 7,
        *,
        in_features: int = 1433,
        hidden: Sequence[int] = (16,),
        dropout: float = 0.5,
        linear: LayerFactory = nn.Linear,
        norm: LayerFactory | None = None,
        activation: LayerFactory | None = nn.ReLU,
        init: Init | None = torch.nn.init.xavier_uniform_,
        width: float = 1.0,
        classifier: LayerFactory = nn.Linear,
    ):
        super().__init__()
        layers = Layers(linear=linear, norm=norm, activation=activation, init=init, width=width)
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.ModuleList()
        dim = in_features
        for neurons in map(layers.scaled, hidden):
            self.hidden.append(GraphLayer(layers, dim, neurons))
            dim = neurons
        self._classify(dim, num_classes, classifier)

    def features(
        self, x: Float[Tensor, "nodes in"], adjacency: Float[Tensor, "nodes nodes"]
    ) -> Float[Tensor, "nodes dim"]:
        """What the classifier sees of every node."""
        for layer in self.hidden:
            x = layer(self.dropout(x), adjacency)
        return torch.sparse.mm(adjacency, self.dropout(x))


class GraphLayer(nn.Module):
    """``activation(norm(Â·linear(x)))``."""

    def __init__(self, layers: Layers, features: int, neurons: int):
        super().__init__()
        self.linear = layers.dense(features, neurons, bias=False)
        self.norm = nn.Identity() if layers.norm is None else layers.norm(neurons)
        self.activation = layers.nonlinearity(neurons)

    def forward(
        self, x: Float[Tensor, "nodes in"], adjacency: Float[Tensor, "nodes nodes"]
    ) -> Float[Tensor, "nodes out"]:
        """Every node's features become a weighted mean over the node and its neighbours."""
        return self.activation(self.norm(torch.sparse.mm(adjacency, self.linear(x))))


def normalized_adjacency(
    edges: Int[Tensor, "2 edges"], nodes: int, *, dtype: torch.dtype | None = None
) -> Float[Tensor, "{nodes} {nodes}"]:
    """``D̃^{−1/2}(A + I)D̃^{−1/2}`` of an undirected graph, as a coalesced sparse tensor (the text's exponent +1/2 is a slip).

    An edge counts once, in both directions, however often and in whichever direction it is listed; loops in the list are ignored, since
    every node gets exactly one.

    >>> normalized_adjacency(torch.tensor([[0], [1]]), nodes=2).to_dense()
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    if edges.numel() and not (edges.min() >= 0 and edges.max() < nodes):
        raise ValueError(
            f"edges must name nodes from 0 to {nodes - 1}, got {edges.min().item()} to {edges.max().item()}"
        )
    loops = torch.arange(nodes, device=edges.device).expand(2, -1)
    rows, columns = torch.cat([edges, edges.flip(0), loops], dim=1).unique(dim=1)
    degree = torch.zeros(nodes, dtype=dtype or torch.get_default_dtype(), device=edges.device)
    degree.index_add_(0, rows, torch.ones_like(rows, dtype=degree.dtype))
    values = degree[rows].rsqrt() * degree[columns].rsqrt()
    return torch.sparse_coo_tensor(
        torch.stack([rows, columns]), values, (nodes, nodes), is_coalesced=True, check_invariants=True
    )


def gcn(num_classes: int | None = 7, **options: Any) -> GCN:
    """The two-layer GCN of 7.5.4 and E.10 (tables 7.11, E.6); see :class:`GCN`."""
    return GCN(num_classes, **options)
