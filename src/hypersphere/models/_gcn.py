"""Graph convolutional network for node classification (7.5.4, E.10)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from typing_extensions import Unpack

from .blocks import Layers, make_layers
from .network import LayerOptions, Network


class GCN(Network):
    r"""``Z = Â·ReLU(Â·X·W₀)·W₁`` without the softmax, where ``Â`` is :func:`normalized_adjacency` (E.10).

    The features of a node are its row of ``Â·ReLU(Â·X·W₀)``, so the classifier W₁ is an ordinary last layer. A hidden
    layer acts on the features of each node, without a bias, before they are averaged over the neighbors. Dropout acts on
    the input of each layer. The hidden width, the dropout, Glorot initialization and the lack of a normalization are
    those of the implementation that Liu (2020) follows.

    Args:
        num_classes: None makes it a feature extractor.
        in_features: Features of a node: 1433 for Cora, 3703 for Citeseer, 500 for Pubmed.
        hidden: Neurons of the hidden layers.
        dropout: Probability of dropout.
        **options: See :class:`~hypersphere.models.LayerOptions`.

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
        **options: Unpack[LayerOptions],
    ):
        super().__init__()
        options.setdefault("norm", None)
        options.setdefault("init", "xavier")
        layers = make_layers(**options, batch=nn.BatchNorm1d)
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.ModuleList()
        dim = in_features
        for neurons in map(layers.scaled, hidden):
            self.hidden.append(GraphLayer(layers, dim, neurons))
            dim = neurons
        self._add_classifier(dim, num_classes, layers)

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "nodes in"], adjacency: Float[Tensor, "nodes nodes"]
    ) -> Float[Tensor, "nodes classes"]:
        """Return ``logits(features(x, adjacency))``."""
        return self.logits(self.features(x, adjacency))

    def features(  # type: ignore[override]
        self, x: Float[Tensor, "nodes in"], adjacency: Float[Tensor, "nodes nodes"]
    ) -> Float[Tensor, "nodes dim"]:
        """Return the features of every node, the input of the classifier."""
        for layer in self.hidden:
            x = layer(self.dropout(x), adjacency)
        return torch.sparse.mm(adjacency, self.dropout(x))


class GraphLayer(nn.Module):
    """``activation(norm(Â·linear(x)))``."""

    def __init__(self, layers: Layers, features: int, neurons: int):
        super().__init__()
        # A SphereNorm replaces the layer. Any other normalization acts on the average over the neighbors.
        self.linear = layers.dense(features, neurons, bias=False, normalize=layers.spherical_norm)
        self.norm = layers.normalization(neurons)
        self.activation = layers.nonlinearity(neurons)

    def forward(
        self, x: Float[Tensor, "nodes in"], adjacency: Float[Tensor, "nodes nodes"]
    ) -> Float[Tensor, "nodes out"]:
        """Replace the features of every node by a weighted mean over the node and its neighbors."""
        return self.activation(self.norm(torch.sparse.mm(adjacency, self.linear(x))))


def normalized_adjacency(
    edges: Int[Tensor, "2 edges"], nodes: int, *, dtype: torch.dtype | None = None
) -> Float[Tensor, "{nodes} {nodes}"]:
    """Return ``D̃^{−1/2}(A + I)D̃^{−1/2}`` of an undirected graph as a coalesced sparse tensor.

    E.10 prints the exponent as +1/2, which is a slip. An edge counts once, in both directions, even if it is listed
    several times or in both directions. Every node gets exactly one loop; loops in the list are ignored.

    Args:
        edges: Pairs of nodes, one per column.
        nodes: Number of nodes.
        dtype: Type of the result; torch's default type if None.

    Raises:
        ValueError: If an edge names a node that does not exist.

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


class GCNOptions(LayerOptions, total=False):
    """The arguments of :class:`GCN`."""

    in_features: int
    hidden: Sequence[int]
    dropout: float


def gcn(num_classes: int | None = 7, **options: Unpack[GCNOptions]) -> GCN:
    """Build the two-layer GCN of 7.5.4 and E.10 (tables 7.11, E.6); see :class:`GCN`.

    >>> adjacency = normalized_adjacency(torch.tensor([[0, 1], [1, 2]]), nodes=3)
    >>> gcn(2, in_features=4, hidden=[8])(torch.ones(3, 4), adjacency).shape
    torch.Size([3, 2])
    """
    return GCN(num_classes, **options)
