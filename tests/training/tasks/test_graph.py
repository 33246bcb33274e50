import numpy as np
import pytest
import torch

from hypersphere import models
from hypersphere.config import call
from hypersphere.data import Digits, Planetoid, PlantedGraph
from hypersphere.orthogonal import overparameterize
from hypersphere.training import Config, Graph, Settings, build_task, replace
from hypersphere.training.optimizers import build_optimizers
from tests.training.contracts import TaskContract

CONFIG = Config(task=call(Graph), data=call(PlantedGraph), backbone=call(models.gcn))


class TestGraph(TaskContract):
    config = CONFIG


class TestGraphWithRotations(TaskContract):
    config = replace(CONFIG, orthogonal=call(overparameterize, method="cayley"))


def train(task, steps):
    (optimizer,) = build_optimizers(Settings(optimizer=call(torch.optim.Adam, lr=0.01)), task)
    for step in range(steps):
        optimizer.zero_grad()
        task.train()(step, *next(iter(task.loader)))[0].backward()
        optimizer.step()
    with torch.no_grad():
        return task.eval().evaluate()["accuracy"]


def test_it_learns_the_communities():
    torch.manual_seed(0)
    assert train(build_task(CONFIG), 60) > 70  # chance level is 25


def test_unseen_nodes_are_measured():
    graph = PlantedGraph()
    assert torch.equal(build_task(CONFIG).measured_samples.data, graph.test)
    assert torch.equal(build_task(replace(CONFIG, {"samples.validation": 0.5})).measured_samples.data, graph.valid)


def test_the_features_of_a_node_sum_to_one():
    features, adjacency = build_task(CONFIG)._graph
    sums = features.sum(1)
    assert (torch.isclose(sums, torch.ones_like(sums)) | (sums == 0)).all()
    assert adjacency.shape == (len(features), len(features))


def test_reads_citation_graphs(tmp_path, monkeypatch):
    graph = PlantedGraph(nodes=60)
    indices = graph.data.nonzero()
    pointers = np.concatenate([[0], np.cumsum(graph.data.sum(1).numpy())]).astype(np.int64)
    (tmp_path / "planetoid").mkdir()
    arrays = {
        "x_data": np.ones(len(indices), np.float32),
        "x_indices": indices[:, 1].numpy(),
        "x_indptr": pointers,
        "x_shape": (60, 32),
    }
    splits = {"train_idx": graph.train.numpy(), "val_idx": graph.valid.numpy(), "test_idx": graph.test.numpy()}
    np.savez(tmp_path / "planetoid" / "cora.npz", **arrays, y=graph.labels.numpy(), edges=graph.edges.numpy(), **splits)
    monkeypatch.setenv("HYPERSPHERE_DATA", str(tmp_path))
    task = build_task(replace(CONFIG, data=call(Planetoid, name="cora")))
    assert isinstance(task, Graph)
    assert len(task.measured_samples) == 40


def test_refuses_other_data():
    with pytest.raises(ValueError, match="data must be a graph for the task Graph, such as Planetoid, got Digits"):
        build_task(replace(CONFIG, data=call(Digits)))
    with pytest.raises(ValueError, match="compile must be false for the task Graph"):
        build_task(CONFIG).compile_model()
