"""Citation graphs: nodes with features and classes, edges, and the public splits."""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import Dataset

from .arrays import Arrays, read_npz
from .roots import Folder, Root, find_folder
from .streams import SPLIT, Stream

_GRAPH_KEYS = ("x_data", "x_indices", "x_indptr", "x_shape", "y", "edges")
_SPLIT_KEYS = ("train_idx", "val_idx", "test_idx")
_BENCHMARK_KEYS = tuple(f"{kind}_{part}" for kind in ("attr", "adj") for part in ("data", "indices", "indptr", "shape"))


class Nodes(Dataset[tuple[Tensor, int]]):
    """One graph whose nodes are samples. ``train``, ``valid`` and ``test`` are indices of nodes."""

    data: Float[Tensor, "n d"]
    labels: Int[Tensor, "n"]
    edges: Int[Tensor, "e 2"]
    classes: tuple[str, ...]
    train: Int[Tensor, "_"]
    valid: Int[Tensor, "_"]
    test: Int[Tensor, "_"]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.data[index], int(self.labels[index])

    @property
    def edge_index(self) -> Int[Tensor, "2 _"]:
        """Return every edge in both directions."""
        return torch.cat([self.edges, self.edges.flip(1)]).T.contiguous()


class Planetoid(Nodes):
    """A citation graph. Its samples are nodes: ``graph[i]`` is (features, label).

    ``data`` is float32 (nodes, features), and ``labels`` int64 (−1 for an unlabeled node). ``edges`` (e, 2), int64, are undirected and
    have no self loops. ``train``, ``valid`` and ``test`` are node indices: the public split of Cora and Citeseer (20 per class, 500,
    1,000). For other graphs, a random split of the same sizes is drawn with ``seed``.

    Read from ``planetoid/<name>.npz`` below a data root. The original files are pickles and are not read. The arrays are either
    ``x_{data,indices,indptr,shape}``, ``y``, ``edges`` and optionally ``{train,val,test}_idx``, or those of the GNN benchmark,
    ``{attr,adj}_{data,indices,indptr,shape}`` and ``labels``.

    >>> graph = Planetoid("cora")  # doctest: +SKIP
    >>> graph.data.shape, len(graph.edges), len(graph.train), len(graph.test)  # doctest: +SKIP
    (torch.Size([2708, 1433]), 5278, 140, 1000)
    """

    def __init__(self, name: Literal["cora", "citeseer", "pubmed", "dblp"], root: Root = None, seed: int = 0):
        folder = find_folder(name, root)
        path = folder.get_file(f"{name}.npz")
        stored = read_npz(folder, path, (), (*_GRAPH_KEYS, *_SPLIT_KEYS, *_BENCHMARK_KEYS, "labels"))
        self.name = name
        try:
            self.data, self.labels, self.edges = _read_graph(stored)
        except (KeyError, ValueError, IndexError, RuntimeError) as error:
            raise folder.make_corrupt_error(
                path, f"{type(error).__name__}: {error}", "the arrays of a graph (see the class)"
            ) from error
        self.classes = tuple(str(c) for c in range(int(self.labels.max()) + 1))
        if all(part in stored for part in _SPLIT_KEYS):
            self.train, self.valid, self.test = (
                _check_split(folder, path, stored[part], len(self)) for part in _SPLIT_KEYS
            )
        else:
            self.train, self.valid, self.test = self._draw_split(seed)

    def _draw_split(self, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw 20 training nodes per class, 500 validation nodes and 1,000 test nodes, as in the public splits."""
        order = Stream(seed, SPLIT, 1).permutation(len(self))
        order = order[self.labels[order] >= 0]
        counts = torch.stack([torch.cumsum(self.labels[order] == c, 0) for c in range(len(self.classes))])
        is_training = counts[self.labels[order], torch.arange(len(order))] <= 20
        rest = order[~is_training]
        return order[is_training].sort().values, rest[:500].sort().values, rest[500:1500].sort().values


def _read_graph(stored: Arrays) -> tuple[Float[Tensor, "n d"], Int[Tensor, "n"], Int[Tensor, "e 2"]]:
    if "x_data" in stored:
        data, labels = _read_dense_matrix(stored, "x"), stored["y"]
        edges = stored["edges"].astype(np.int64)
    else:
        data, labels = _read_dense_matrix(stored, "attr"), stored["labels"]
        pointers, columns = _read_sparsity_pattern(stored, "adj")
        edges = np.stack([np.repeat(np.arange(len(pointers) - 1), np.diff(pointers)), columns], axis=1)
    n = len(data)
    if labels.shape != (n,) or labels.dtype.kind not in "iu" or labels.min() < -1 or labels.max() < 0:
        raise ValueError(f"labels {labels.shape} {labels.dtype}, expected integers ≥ −1 for {n} nodes")
    if edges.ndim != 2 or edges.shape[1] != 2 or (len(edges) and not 0 <= edges.min() <= edges.max() < n):
        raise ValueError(f"edges {edges.shape}, expected pairs of nodes 0 … {n - 1}")
    edges = np.unique(np.sort(edges, axis=1), axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    return torch.from_numpy(data), torch.from_numpy(labels.astype(np.int64)), torch.from_numpy(edges)


def _read_sparsity_pattern(stored: Arrays, prefix: str) -> tuple[np.ndarray, np.ndarray]:
    """Return row pointers and columns of a matrix in compressed row format; raise ``ValueError`` if they do not fit its shape."""
    rows, columns = (int(size) for size in stored[f"{prefix}_shape"])
    pointers, indices = stored[f"{prefix}_indptr"].astype(np.int64), stored[f"{prefix}_indices"].astype(np.int64)
    is_complete = pointers.shape == (rows + 1,) and pointers[0] == 0 and pointers[-1] == len(indices)
    if not is_complete or (np.diff(pointers) < 0).any():
        raise ValueError(f"{prefix}_indptr does not describe {rows} rows of {len(indices)} entries")
    if len(indices) and not 0 <= indices.min() <= indices.max() < columns:
        raise ValueError(f"{prefix}_indices must lie in 0 … {columns - 1}")
    return pointers, indices


def _read_dense_matrix(stored: Arrays, prefix: str) -> np.ndarray:
    pointers, indices = _read_sparsity_pattern(stored, prefix)
    values = stored[f"{prefix}_data"]
    if values.shape != indices.shape:
        raise ValueError(f"{prefix}_data has {len(values)} values for {len(indices)} entries")
    dense = np.zeros(tuple(int(size) for size in stored[f"{prefix}_shape"]), dtype=np.float32)
    dense[np.repeat(np.arange(len(dense)), np.diff(pointers)), indices] = values
    return dense


def _check_split(folder: Folder, path: Path, stored: np.ndarray, nodes: int) -> Int[Tensor, "_"]:
    are_integers = stored.ndim == 1 and stored.dtype.kind in "iu"
    if not are_integers or (len(stored) and not 0 <= stored.min() <= stored.max() < nodes):
        found = f"a split of {stored.shape} {stored.dtype}"
        raise folder.make_corrupt_error(path, found, f"node numbers 0 … {nodes - 1}")
    return torch.from_numpy(stored.astype(np.int64))
