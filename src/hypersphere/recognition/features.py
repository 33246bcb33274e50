"""Computation of features in batches, and files of features."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..collectives import gather_results
from ..data import UnusableSampleError
from ..data.loader import map_ahead
from ..data.sources import open_source
from ..data.sources.source import OnError, Source, list_missing
from ..evaluation.features import pair_scores
from ..files import checksum, write_atomically
from ..models.network import evaluation_mode
from .embedder import Embedder, read_file

FORMAT = "hypersphere-features/2"


class Features(NamedTuple):
    """Features of pictures, in the order of ``files``, and the fingerprint of the embedder that computed them.

    >>> import tempfile
    >>> embedder = Embedder(torch.nn.Flatten(), hs.data.PicturePreprocessing(size=(4, 4), channels=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.pgm").write_bytes(b"P5 4 4 255 " + bytes(16)), Path(folder, "b.pgm").write_text("text")
    ...     found = embed(embedder, [folder], on_error="skip")
    >>> found.features.shape, len(found.files), len(found.skipped)
    (torch.Size([1, 16]), 1, 1)
    """

    features: Float[Tensor, "n d"]
    files: list[str]
    """the name of each picture in its source, which is its path if it is a file"""
    fingerprint: str
    skipped: Mapping[str, str] = MappingProxyType({})
    """pictures that could not be read or show no face, with the reason"""
    labels: Sequence[str] = ()
    """the label of each feature's picture in its source; not saved in files"""
    info: Sequence[Mapping[str, Any]] = ()
    """properties of the sample of each feature, such as the box, landmarks, score and quality of a face; not saved in files"""
    positions: Sequence[int] = ()
    """the position of each feature's picture in its source; not saved in files"""


class _Batch(NamedTuple):
    """Samples of one batch, their indices, the reasons why others could not be read, and the properties of each sample."""

    samples: Any
    indices: list[int]
    failed: dict[int, str]
    info: Sequence[Mapping[str, Any]] = ()


def extract_features(
    model: Callable[[Tensor], Tensor],
    read: Callable[[Int[Tensor, "b"]], Tensor],
    count: int,
    batch: int = 64,
    *,
    workers: int = 0,
    group: dist.ProcessGroup | None = None,
) -> Float[Tensor, "n d"]:
    """Compute the features of ``count`` samples, ``batch`` at a time.

    Training, evaluation and galleries all compute their features here.

    Args:
        model: Computes the features of a batch of samples. It sets its own mode and device.
        read: Returns the samples at the given indices.
        count: The number of samples.
        batch: The batch size.
        workers: Threads that read ahead of the model.
        group: Processes that divide the samples among them, such as :func:`all_processes`. All of them make the same
            call, and each returns all features. By default this process works alone.

    Returns:
        Features in the order of the samples, in float32 on the CPU.

    Raises:
        ValueError: If ``batch`` or ``count`` is below 1, or ``read`` raises one; on every process.

    >>> data = torch.arange(10.0).reshape(5, 2)
    >>> extract_features(lambda x: 2 * x, lambda index: data[index], 5, batch=2)[4]
    tensor([16., 18.])
    """
    return _extract(model, lambda index: _Batch(read(index), index.tolist(), {}), count, batch, workers, group)[0]


def embed(
    embedder: Embedder,
    samples: Any,
    batch: int = 64,
    *,
    on_error: OnError = "raise",
    allow_none: bool = False,
    choose: str | None = None,
    workers: int = 2,
    group: dist.ProcessGroup | None = None,
) -> Features:
    """Compute the features of pictures, or of the faces in photographs.

    Args:
        embedder: Computes the features, on its device.
        samples: Anything that :func:`hypersphere.data.open_source` takes: a folder, which is searched for pictures and recordings, a
            file, a table, shards, arrays, a list of paths, or an open source. Labels are not needed.
        batch: The batch size.
        on_error: ``"skip"`` skips pictures that cannot be read or show no face, and lists them in ``skipped``.
            ``"skip_empty"`` skips only pictures without a face.
        allow_none: Whether all pictures may be skipped. The result then has no features.
        choose: Which faces of a photograph to use: ``"largest"``, ``"central"``, ``"all"`` or ``"refuse"``; see
            :class:`hypersphere.data.FacePreprocessing`. The default is the setting of the embedder's preprocessing. With
            ``"all"``, a picture has one feature per face, the largest face first.
        workers: Threads that read and decode ahead of the network.
        group: Processes that divide the pictures among them; see :func:`extract_features`.

    Returns:
        The features with the names and labels of the pictures, in the order of the source.

    Raises:
        ValueError: If a picture cannot be read, unless it is skipped, or if none is left and ``allow_none`` is false; on every
            process.

    >>> import tempfile
    >>> embedder = Embedder(torch.nn.Flatten(), hs.data.PicturePreprocessing(size=(4, 4), channels=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "gray.pgm").write_bytes(b"P5 4 4 255 " + bytes(16))
    ...     embed(embedder, [folder]).features.shape
    torch.Size([1, 16])
    """
    if on_error not in ("raise", "skip", "skip_empty"):
        raise ValueError(f"on_error must be 'raise', 'skip' or 'skip_empty', got {on_error!r}")
    if isinstance(samples, list) and not samples:
        raise ValueError("samples must name at least one image, got none")
    source = open_source(samples, identities=1, loose="keep", skip_missing=on_error == "skip")
    policy = embedder.preprocessing.choose if choose is None else choose

    def read(index: Int[Tensor, "b"]) -> _Batch:
        windows, indices, failed, info = [], [], {}, []
        for i in index.tolist():
            usable = source.load_usable(i, embedder.preprocessing, policy, on_error)
            if isinstance(usable, str):
                failed[i] = usable
                continue
            for found in usable:
                windows.append(found.windows(embedder.preprocessing.shape))
                indices.append(i)
                info.append(dict(found.info))  # processes exchange it, and a read-only view cannot be pickled
        return _Batch(windows or None, indices, failed, info)

    def compute(windows: list[Tensor]) -> Tensor:
        with torch.no_grad(), evaluation_mode(embedder.network):
            return embedder.of_windows(windows, batch)

    features, indices, failed, info = _extract(compute, read, len(source), batch, workers, group)
    if not indices and not allow_none:
        first, reason = next(iter(failed.items()))
        raise ValueError(
            f"none of {len(source)} samples of {source.name} can be used; the first: {source.records[first].name}: {reason}"
        )
    records = [source.records[i] for i in indices]
    skipped = (
        {} if isinstance(samples, Source) else list_missing(source)
    )  # an open source reports missing files when it is opened
    skipped |= {source.records[i].name: reason for i, reason in failed.items()}
    labels = [record.label for record in records]
    return Features(features, [r.name for r in records], embedder.fingerprint, skipped, labels, info, indices)


def embed_samples(
    embedder: Embedder, samples: Any, choose: str | None = None
) -> tuple[Float[Tensor, "n d"], list[int], Sequence[Mapping[str, Any]]]:
    """Compute the features of samples in memory, or of the faces in them.

    Args:
        embedder: Computes the features.
        samples: One sample or a list: paths, PIL images, arrays or tensors; or a batch of prepared samples.
        choose: Which faces of a photograph to use; see :func:`embed`.

    Returns:
        The features, the position of the sample of each feature, and the properties of each.

    Raises:
        UnusableSampleError: If the embedder detects faces and a sample shows none.

    >>> embedder = Embedder(torch.nn.Flatten(), hs.data.PicturePreprocessing(size=(4, 4), channels=1))
    >>> features, owners, info = embed_samples(embedder, [np.zeros((4, 4), dtype=np.uint8)] * 2)
    >>> features.shape, owners
    (torch.Size([2, 16]), [0, 1])
    """
    preprocessing = embedder.preprocessing
    several = list(samples) if isinstance(samples, list | tuple) else [samples]
    if (isinstance(samples, Tensor) and samples.ndim == 4) or not preprocessing.finds_several:
        features = embedder(samples)
        return features, list(range(len(features))), []
    policy = preprocessing.choose if choose is None else choose
    tensors, owners, info = [], [], []
    for i, sample in enumerate(several):
        found = preprocessing.load_all(sample, None, policy)
        if not found:
            name = str(sample) if isinstance(sample, str | os.PathLike) else f"sample {i}"
            raise UnusableSampleError(f"{name}: no {preprocessing.content} was found")
        for one in found:
            tensors.append(one.tensor)
            owners.append(i)
            info.append(one.info)
    if not tensors:
        raise ValueError("samples must be at least one sample, got none")
    return embedder(torch.stack(tensors)), owners, info


def all_processes() -> dist.ProcessGroup | None:
    """Return the group of all processes if ``torch.distributed`` is initialized, otherwise None.

    >>> all_processes() is None
    True
    """
    return dist.group.WORLD if dist.is_available() and dist.is_initialized() else None


def score_all_pairs(features: Features) -> tuple[Float[Tensor, "pairs"], Bool[Tensor, "pairs"]]:
    """Return the cosine of every pair of labeled features, and whether its labels are the same.

    >>> score_all_pairs(Features(torch.eye(2), ["1.png", "2.png"], "3f9c", labels=["ann", "bob"]))
    (tensor([0.]), tensor([False]))
    """
    number = {label: i for i, label in enumerate(dict.fromkeys(features.labels))}
    who = torch.tensor([number[label] for label in features.labels])
    pairs = torch.combinations(torch.arange(len(who)))
    return pair_scores(features.features, pairs), who[pairs[:, 0]] == who[pairs[:, 1]]


def _extract(
    model: Callable[[Any], Tensor],
    read: Callable[[Int[Tensor, "b"]], _Batch],
    count: int,
    batch: int,
    workers: int,
    group: dist.ProcessGroup | None,
) -> tuple[Float[Tensor, "n d"], list[int], dict[int, str], list[Mapping[str, Any]]]:
    """Return the features of the readable samples, their indices in order, the reasons for the others, and properties."""
    if batch < 1:
        raise ValueError(f"batch must be an integer ≥ 1, got {batch!r}")
    if count < 1:
        raise ValueError("there must be at least one sample, got none")
    rank, world = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    own = [part for part in torch.arange(rank, count, world).split(batch) if len(part)]

    def compute() -> tuple[list[Tensor], list[int], dict[int, str], list[Mapping[str, Any]]]:
        parts, index, failed = [], [], {}
        info: list[Mapping[str, Any]] = []
        for found in map_ahead(read, own, workers):
            failed.update(found.failed)
            if found.samples is not None:
                parts.append(model(found.samples).float().cpu())
                index += found.indices
                info += found.info
        return parts, index, failed, info

    shares = [compute()] if group is None else gather_results(compute, group)
    parts = [part for share in shares for part in share[0]]
    failed = {i: reason for share in shares for i, reason in sorted(share[2].items())}
    features, index = torch.cat(parts) if parts else torch.empty(0, 0), [i for share in shares for i in share[1]]
    info = [one for share in shares for one in share[3]]
    if world > 1:
        order = sorted(range(len(index)), key=index.__getitem__)
        features, index = features[torch.tensor(order)], [index[i] for i in order]
        info = [info[i] for i in order] if info else []
    return features, index, dict(sorted(failed.items())), info


def save_features(features: Features, path: str | os.PathLike[str]) -> None:
    """Write features ``(n, d)`` with their files, fingerprint and a checksum. The file appears in one step.

    A file that ends in ``.npy`` contains only the features, in NumPy's format. Only the owner can read the file, because
    features are biometric data.

    >>> import tempfile
    >>> made = Features(torch.eye(2), ["a.png", "b.png"], fingerprint="3f9c")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_features(made, f"{folder}/features.npy")
    ...     np.load(f"{folder}/features.npy").shape
    (2, 2)
    """
    if Path(path).suffix == ".npy":
        array = features.features.contiguous().numpy()
        write_atomically(path, lambda temporary: _save_array(temporary, array), private=True)
        return
    tensors = {"features": features.features.contiguous()}
    content = {"files": features.files, "fingerprint": features.fingerprint}
    header = json.dumps({"sha256": checksum(content, tensors), "content": content})
    write_atomically(
        path, lambda temporary: safetensors.torch.save_file(tensors, temporary, {FORMAT: header}), private=True
    )


def load_features(path: str | os.PathLike[str]) -> Features:
    """Read a file of :func:`save_features`. A damaged file is a ``ValueError``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_features(Features(torch.eye(2), ["a.png", "b.png"], "3f9c"), f"{folder}/made.safetensors")
    ...     load_features(f"{folder}/made.safetensors").files
    ['a.png', 'b.png']
    """
    header, tensors = read_file(path, FORMAT)
    content = header.get("content")
    if not isinstance(content, dict) or header.get("sha256") != checksum(content, tensors):
        raise ValueError(f"{path} is damaged: its checksum does not match its content")
    return Features(tensors["features"], list(content["files"]), str(content["fingerprint"]))


def _save_array(path: str, array: np.ndarray) -> None:
    with open(path, "wb") as file:
        np.save(file, array, allow_pickle=False)
