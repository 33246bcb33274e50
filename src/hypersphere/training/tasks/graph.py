"""Node classification on one graph, all nodes at a time (7.5.4, E.10)."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ... import models
from ...data import InMemory, Planetoid, PlantedGraph
from ...data.graphs import Nodes
from ...models import normalized_adjacency
from ...objectives import MarginSoftmax
from ..config import Config
from ..config import Data as Settings
from ..parts import build_model
from .base import Batch, Task
from .classification import Classification

GRAPHS = ("cora", "citeseer", "pubmed", "dblp")


class Graph(Classification):
    """A graph network trained on the labels of a few nodes, measured on the test nodes, or on the validation nodes when a part is held out.

    Each node's features are divided by their sum, as in the implementation the text follows. A step sees the whole graph; several
    processes all compute the same step.
    """

    model: models.GCN  # type: ignore[assignment]

    def __init__(self, config: Config):
        Task.__init__(self, config)
        graph = read_graph(config.data)
        measured = graph.valid if config.data.validation else graph.test
        self.normalize = None
        # Kept on the device by hand: as a buffer the graph would be in every checkpoint.
        self._graph = (
            graph.data / graph.data.sum(1, keepdim=True).clamp(min=1e-12),
            normalized_adjacency(graph.edge_index, len(graph)),
        )
        self.measured = InMemory(measured, graph.labels[measured], graph.classes)
        self.build(InMemory(graph.train, graph.labels[graph.train], graph.classes))
        self.loader = OneBatch((graph.train, graph.labels[graph.train]))

    def network(self, train: InMemory) -> models.Network:
        """One that takes as many features as a node has."""
        return build_model(self.config.model, self.config.head, len(train.classes), in_features=self._graph[0].shape[1])

    def objective(self, inputs: Int[Tensor, "b"], labels: Int[Tensor, "b"]) -> Tensor:
        """The head's loss on the nodes ``inputs``."""
        assert isinstance(self.model.classifier, MarginSoftmax)
        return self.model.classifier(self.nodes(inputs), labels)

    def nodes(self, index: Int[Tensor, "b"]) -> Float[Tensor, "b d"]:
        """Features of some nodes; sparse products have no half-precision form, so all is computed in the graph's own."""
        if self._graph[0].device != index.device:
            self._graph = (self._graph[0].to(index.device), self._graph[1].to(index.device))
        with torch.autocast(index.device.type, enabled=False):
            return self.model.features(*self._graph)[index]

    def embed(self, dataset: InMemory, batch: int = 0) -> Float[Tensor, "n d"]:
        """Features of the dataset's nodes, on the CPU; they are computed together, whatever the ``batch``."""
        return self.nodes(dataset.data.to(self.device)).cpu()


class OneBatch:
    """Batches that are always the same one."""

    def __init__(self, batch: Batch):
        self.batch = batch

    def __iter__(self) -> Iterator[Batch]:
        yield self.batch

    def state_dict(self) -> dict[str, Any]:
        """There is one position only."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is nowhere to go."""


def read_graph(config: Settings) -> Nodes:
    """The graph the config names."""
    if config.name == "PlantedGraph":
        return PlantedGraph()
    for name in GRAPHS:
        if name == config.name:
            return Planetoid(name)  # type: ignore[arg-type]
    raise ValueError(
        f"data.name must be one of {', '.join((*GRAPHS, 'PlantedGraph'))} for the task graph, got {config.name!r}"
    )
