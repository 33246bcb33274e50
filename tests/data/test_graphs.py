import numpy as np
import pytest
import scipy.sparse
import torch

from hypersphere.data import CorruptDataError, Planetoid

from .contracts import ReaderContract
from .files import digest, random

FEATURES = scipy.sparse.csr_matrix(random(8, 5, high=3))
EDGES = np.array([[0, 1], [1, 2], [2, 3], [4, 5], [0, 7]], np.int32)
Y = np.array([0, 1, 2, 0, 1, 2, -1, 1], np.int16)
OWN = {
    **{f"x_{part}": getattr(FEATURES, part) for part in ("data", "indices", "indptr", "shape")},
    "y": Y,
    "edges": EDGES,
    "train_idx": np.array([0, 1, 2]),
    "val_idx": np.array([3]),
    "test_idx": np.array([4, 5]),
}


class TestOwnForm(ReaderContract):
    name = "cora"
    examples = 25

    def make(self, root):
        (root / "planetoid").mkdir(parents=True)
        np.savez_compressed(root / "planetoid" / "cora.npz", **OWN)

    def read(self, root):
        return Planetoid("cora", root)

    def test_returns_the_written_data(self, tmp_path):
        self.make(tmp_path)
        graph = self.read(tmp_path)
        assert torch.equal(graph.data, torch.from_numpy(FEATURES.toarray()).float())
        assert graph.labels.tolist() == Y.tolist()
        assert sorted(map(tuple, graph.edges.tolist())) == sorted(map(tuple, EDGES.tolist()))
        assert [part.tolist() for part in (graph.train, graph.valid, graph.test)] == [[0, 1, 2], [3], [4, 5]]

    def test_edge_index_is_the_symmetric_adjacency(self, tmp_path):
        self.make(tmp_path)
        row, column = self.read(tmp_path).edge_index
        adjacency = torch.zeros(8, 8)
        adjacency[row, column] = 1
        assert torch.equal(adjacency, adjacency.T)
        assert adjacency.sum() == 10


class TestBenchmarkForm(TestOwnForm):
    """The format of the GNN benchmark: directed, with self loops, and with pickled members that must not be read."""

    def make(self, root):
        (root / "planetoid").mkdir(parents=True)
        adjacency = np.zeros((8, 8))
        adjacency[EDGES[:, 0], EDGES[:, 1]] = adjacency[1, 0] = adjacency[3, 3] = 1
        parts = {"attr": FEATURES, "adj": scipy.sparse.csr_matrix(adjacency)}
        arrays = {
            f"{kind}_{part}": getattr(matrix, part)
            for kind, matrix in parts.items()
            for part in ("data", "indices", "indptr", "shape")
        }
        names = np.array([{"a": 1}], dtype=object)
        np.savez(root / "planetoid" / "cora.npz", **arrays, labels=Y, node_names=names)

    def test_returns_the_written_data(self, tmp_path):
        self.make(tmp_path)
        graph = self.read(tmp_path)
        assert torch.equal(graph.data, torch.from_numpy(FEATURES.toarray()).float())
        assert sorted(map(tuple, graph.edges.tolist())) == sorted(map(tuple, EDGES.tolist()))
        assert graph.train.tolist() == [
            0,
            1,
            2,
            3,
            4,
            5,
            7,
        ]  # all labeled nodes, because each class has fewer than 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_indptr": FEATURES.indptr[:-1]}, "x_indptr does not describe 8 rows"),
        ({"x_indices": FEATURES.indices + 4}, "x_indices must lie in 0 … 4"),
        ({"x_data": FEATURES.data[1:]}, "values for"),
        ({"y": Y[:-1]}, "expected integers ≥ −1 for 8 nodes"),
        ({"y": Y.astype(float)}, "expected integers"),
        ({"edges": EDGES + 1}, "expected pairs of nodes 0 … 7"),
        ({"edges": EDGES[:, :1]}, "expected pairs of nodes"),
        ({"train_idx": np.array([8])}, "expected node numbers 0 … 7"),
        ({"test_idx": np.array([0.5])}, "expected node numbers"),
        ({"y": np.array([{}] * 8, dtype=object)}, "expected an .npz with plain arrays"),
        ({"edges": None}, "KeyError"),
    ],
)
def test_errors_describe_the_problem(tmp_path, change, message):
    arrays = {name: array for name, array in {**OWN, **change}.items() if array is not None}
    np.savez(tmp_path / "cora.npz", **arrays)
    with pytest.raises(CorruptDataError, match=f"cora.npz: found .*{message}"):
        Planetoid("cora", tmp_path)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "edges", "split", "data"),
    [
        (
            "cora",
            (2708, 1433),
            7,
            5278,
            [140, 500, 1000],
            "f0faab5177bcc12f5688f042c8e0ed24ffb9baa8efc3ae7cde440d42524c9075",
        ),
        (
            "citeseer",
            (3327, 3703),
            6,
            4552,
            [120, 500, 1000],
            "cb9a425333dd8d1ae650e0eb4f3d65b14920aa6d5f0d4efa56d60f18f8d8c600",
        ),
        (
            "dblp",
            (17716, 1639),
            4,
            52867,
            [80, 500, 1000],
            "515e9a9a149b0bcbc72aa89fc9384f0a12c031e7c0bf12d91bcf321b16b4f134",
        ),
    ],
)
def test_the_real_set(real, name, shape, classes, edges, split, data):
    graph = Planetoid(name, real(name))
    assert (graph.data.shape, len(graph.classes), len(graph.edges)) == (shape, classes, edges)
    assert digest(graph.data) == data
    parts = [graph.train, graph.valid, graph.test]
    assert [len(part) for part in parts] == split
    assert len(torch.cat(parts).unique()) == sum(split)
    assert torch.bincount(graph.labels[graph.train]).tolist() == [20] * classes
    assert int((graph.labels < 0).sum()) == (15 if name == "citeseer" else 0)


def test_a_drawn_split_depends_only_on_the_seed(real):
    roots = real("dblp")
    first, again, other = (Planetoid("dblp", roots, seed=seed).train for seed in (0, 0, 1))
    assert digest(first) == "6fcc1028abea35c3c76bdc33f7d57f9716e1ba15b9199a05e7593731dca30d2e" == digest(again)
    assert not torch.equal(first, other)
