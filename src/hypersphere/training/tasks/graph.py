"""Node classification on one graph, all nodes at a time (7.5.4 and E.10 of Liu, 2020)."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from typing_extensions import Unpack

from ...config import Call
from ...data import InMemory
from ...data.graphs import Nodes
from ...models import normalized_adjacency
from .classification import Classification, TaskOptions
from .task import Batch


class Graph(Classification):
    """A graph network trained on the labels of a few nodes, measured on the test nodes.

    The features of a node are divided by their sum, as in the implementation that Liu (2020) follows. A step uses the whole
    graph, so several processes all compute the same step.

    Args:
        graph: nodes, edges and the three sets of labeled nodes.
        validation: measure the validation nodes instead of the test nodes.

    >>> from hypersphere.training import Graph, call
    >>> graph = hs.data.PlantedGraph(nodes=60)
    >>> task = Graph(hs.models.gcn(None, in_features=32), hs.objectives.Softmax(16, 4), graph)
    >>> len(task.train_samples), len(task.measured_samples), 0 <= task.eval().evaluate()["accuracy"] <= 100
    (10, 40, True)
    """

    def __init__(
        self,
        model: nn.Module | Call,
        head: nn.Module | Call,
        graph: Nodes,
        *,
        validation: bool = False,
        **options: Unpack[TaskOptions],
    ):
        measured = graph.valid if validation else graph.test
        # No buffer, because buffers are part of every checkpoint. `features` moves the graph to the device.
        rows = graph.data / graph.data.sum(1, keepdim=True).clamp(min=1e-12)
        self._graph = (rows, normalized_adjacency(graph.edge_index, len(graph)))
        train = InMemory(graph.train, graph.labels[graph.train], graph.classes)
        super().__init__(model, head, train, InMemory(measured, graph.labels[measured], graph.classes), **options)
        self.loader = OneBatch((graph.train, graph.labels[graph.train]))

    def features(self, inputs: Int[Tensor, "b"]) -> Float[Tensor, "b d"]:
        """Return features of some nodes in the precision of the graph, because there are no sparse products in half precision."""
        if self._graph[0].device != inputs.device:
            self._graph = (self._graph[0].to(inputs.device), self._graph[1].to(inputs.device))
        with torch.autocast(inputs.device.type, enabled=False):
            rows: Tensor = self.model.features(*self._graph)
        return rows[inputs]

    def compile_model(self) -> None:
        """Raise, because sparse products cannot be compiled."""
        raise ValueError("compile must be false for the task Graph: its sparse products cannot be compiled")


class OneBatch:
    """A stream that repeats one batch."""

    def __init__(self, batch: Batch):
        self.batch = batch

    def __iter__(self) -> Iterator[Batch]:
        yield self.batch

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state, because there is only one position."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing, because there is only one position."""
