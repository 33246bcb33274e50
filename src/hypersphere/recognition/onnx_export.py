"""Export of embedders as ONNX graphs, which are compared with PyTorch before the file is written."""

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from .._extras import require
from ..evaluation.features import append_mirrored
from ..files import write_atomically, write_json
from ..models import read_features
from ..models.network import evaluation_mode
from .embedder import Embedder

MAX_DIFFERENCE = 1e-4  # relative difference of the features of PyTorch and onnxruntime


class OnnxReport(NamedTuple):
    """The written graph and the difference of its features from PyTorch.

    ``difference`` is the largest ‖f − f'‖/‖f‖ over ``images`` images; ``size`` is in bytes.

    >>> report = OnnxReport(Path("faces.onnx"), images=32, difference=2.5e-7, size=1_300_000)
    >>> f"{report.path} of {report.size / 1e6:.1f} MB differs from torch by at most {report.difference:.1e}"
    'faces.onnx of 1.3 MB differs from torch by at most 2.5e-07'
    """

    path: Path
    images: int
    difference: float
    size: int


def export_onnx(
    embedder: Embedder, path: str | os.PathLike[str], images: Shaped[Tensor, "n ..."], *, opset: int = 18
) -> OnnxReport:
    """Write ``pixels`` uint8 (batch, c, h, w) → ``features`` float32 (batch, d) for any batch size.

    For recordings the input is ``samples`` float32 (batch, n), the windows of one length. The normalization is part of the
    graph: for pictures the scaling of pixels, mean and standard deviation, and the mirror image if the embedder uses it; for
    recordings the mel spectrogram. The preprocessing before the graph (cropping and resizing; resampling, trimming and
    windows) is described in ``path`` + ``.json`` and in the metadata of the graph. onnxruntime runs the graph on
    ``images`` and on the first one alone. The file is written only if the features agree with PyTorch to 10⁻⁴ of their
    length.

    Args:
        embedder: The embedder, which is not changed.
        path: The file to write.
        images: At least two real images, prepared by ``embedder.preprocessing.load``.
        opset: ONNX operator set.

    Raises:
        ValueError: If the network cannot be written as a graph, or the features differ. No file is written then.

    >>> embedder = Embedder(torch.nn.Flatten(), hs.data.PicturePreprocessing(size=(4, 4), channels=1))
    >>> export_onnx(embedder, "small.onnx", torch.zeros(1, 1, 4, 4, dtype=torch.uint8))  # one image is too few
    Traceback (most recent call last):
    ValueError: images must be at least two of shape (1, 4, 4) in uint8, got torch.uint8 (1, 1, 4, 4)
    """
    shape, dtype = embedder.preprocessing.shape, embedder.preprocessing.dtype
    if len(images) < 2 or tuple(images.shape[1:]) != shape or images.dtype != dtype:
        name = str(dtype).removeprefix("torch.")
        raise ValueError(
            f"images must be at least two of shape {shape} in {name}, got {images.dtype} {tuple(images.shape)}"
        )
    runtime = require("onnxruntime", "export")
    target, graph = Path(path), _Graph(embedder).eval()
    differences: list[float] = []
    _compute(
        embedder, images[:2]
    )  # computes cached tables, such as mel filters, so that they are constants of the graph

    def write(temporary: str) -> None:
        with evaluation_mode(embedder.network), _silence_exporter():
            _write_graph(
                graph,
                images.to(embedder.device),
                temporary,
                opset,
                _make_metadata(embedder),
                embedder.preprocessing.input_name,
            )
        differences.append(_measure_difference(runtime, temporary, embedder, images))

    write_atomically(target, write)
    write_json(target.with_name(f"{target.name}.json"), _make_metadata(embedder))
    return OnnxReport(target, len(images), differences[0], target.stat().st_size)


class _Graph(nn.Module):
    """The exported computation: from stored samples to features."""

    def __init__(self, embedder: Embedder):
        super().__init__()
        self.network, self.mirror = embedder.network, embedder.preprocessing.mirror
        self.normalize = embedder.preprocessing.normalize

    def forward(self, stored: Tensor) -> Tensor:
        x = self.normalize(stored)
        return append_mirrored(self._features, x) if self.mirror else self._features(x)

    def _features(self, x: Tensor) -> Tensor:
        return read_features(self.network, x).float()


def _write_graph(graph: nn.Module, images: Tensor, path: str, opset: int, metadata: dict[str, Any], name: str) -> None:
    require("onnxscript", "export")
    batch = torch.export.Dim("batch")
    try:
        program = torch.onnx.export(
            graph,
            (images[:2],),
            dynamo=True,
            dynamic_shapes=({0: batch},),
            input_names=[name],
            output_names=["features"],
            opset_version=opset,
            verbose=False,
        )
    except Exception as error:  # the exporter fails in many ways; the reason goes into the message
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"the network cannot be written as an ONNX graph of any batch size: {reason}") from error
    assert program is not None
    for key, value in metadata.items():
        program.model.metadata_props[f"hypersphere.{key}"] = value if isinstance(value, str) else json.dumps(value)
    program.save(path)


def _measure_difference(runtime: Any, path: str, embedder: Embedder, images: Shaped[Tensor, "n ..."]) -> float:
    """Return the largest relative difference over all images in one batch and the first one alone."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    largest = 0.0
    for part in (images, images[:1]):
        expected = _compute(embedder, part)
        try:
            output = session.run(None, {embedder.preprocessing.input_name: part.cpu().numpy()})[0]
        except Exception as error:  # the errors of onnxruntime have no common base class
            reason = " ".join(str(error).split())
            raise ValueError(f"the ONNX graph does not run on a batch of {len(part)}: {reason}") from error
        actual = torch.from_numpy(np.asarray(output)).double()
        if actual.shape != expected.shape:
            raise ValueError(
                f"the ONNX graph computes features {tuple(actual.shape)}, torch computes {tuple(expected.shape)}"
            )
        largest = max(largest, _compute_relative_difference(expected, actual))
    if not largest <= MAX_DIFFERENCE:
        raise ValueError(
            f"features of the ONNX graph differ from torch by {largest:.2g} of their length, "
            f"more than {MAX_DIFFERENCE:g}; no file was written"
        )
    return largest


def _compute(embedder: Embedder, stored: Tensor) -> Tensor:
    with torch.no_grad(), evaluation_mode(embedder.network):
        return embedder.of_inputs(embedder.preprocessing.normalize(stored.to(embedder.device))).double().cpu()


def _compute_relative_difference(expected: Float[Tensor, "n d"], actual: Float[Tensor, "n d"]) -> float:
    length = expected.norm(dim=1).clamp_min(1e-12)
    return float(((expected - actual).norm(dim=1) / length).max())


def _make_metadata(embedder: Embedder) -> dict[str, Any]:
    return {
        "format": "hypersphere-onnx/1",
        "fingerprint": embedder.fingerprint,
        "preprocessing": embedder.preprocessing.to_dict(),
        "input": embedder.preprocessing.describe_input(),
        "output": "features: float32 (batch, dim); compare by cosine",
    }


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Silence warnings of the exporter about its optional parts."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
