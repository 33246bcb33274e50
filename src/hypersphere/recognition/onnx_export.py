"""Embedders for other runtimes: an ONNX graph that is compared with torch before it takes its place."""

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

CLOSE = 1e-4  # relative difference of features allowed between torch and onnxruntime


class OnnxReport(NamedTuple):
    """What was written and how close it is to torch.

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
    graph: for pictures the scaling of pixels, mean and deviation, and the mirror image if the embedder has one; for recordings
    the mel spectrogram. What comes before (cropping and resizing; resampling, trimming and windows) is described by
    ``path`` + ``.json`` and in the graph's metadata. The file
    is run by onnxruntime on ``images``, one at a time and together, and compared with torch; it takes its place only if
    the features agree to 10⁻⁴ of their length.

    Args:
        embedder: What is written; it stays as it is.
        path: The file to write.
        images: At least two real images as the embedder's preprocessing gives them: ``embedder.preprocessing.load``.
        opset: ONNX operator set.

    Raises:
        ValueError: If the network cannot be written as a graph, or the features differ; no file is left then.

    >>> embedder = Embedder(torch.nn.Flatten(), hs.data.PicturePreprocessing(size=(4, 4), channels=1))
    >>> export_onnx(embedder, "small.onnx", torch.zeros(1, 1, 4, 4, dtype=torch.uint8))  # one image is too few
    Traceback (most recent call last):
    ValueError: images must be at least two of shape (1, 4, 4) in uint8, got torch.uint8 (1, 1, 4, 4)
    """
    wanted, kind = embedder.preprocessing.shape, embedder.preprocessing.dtype
    if len(images) < 2 or tuple(images.shape[1:]) != wanted or images.dtype != kind:
        name = str(kind).removeprefix("torch.")
        raise ValueError(
            f"images must be at least two of shape {wanted} in {name}, got {images.dtype} {tuple(images.shape)}"
        )
    runtime = require("onnxruntime", "export")
    target, graph = Path(path), _Graph(embedder).eval()
    found: list[float] = []
    _compute(embedder, images[:2])  # tables such as mel filters are computed once, and must be constants of the graph

    def write(temporary: str) -> None:
        with evaluation_mode(embedder.network), _quiet():
            _write(
                graph,
                images.to(embedder.device),
                temporary,
                opset,
                _metadata(embedder),
                embedder.preprocessing.input_name,
            )
        found.append(_difference(runtime, temporary, embedder, images))

    write_atomically(target, write)
    write_json(target.with_name(f"{target.name}.json"), _metadata(embedder))
    return OnnxReport(target, len(images), found[0], target.stat().st_size)


class _Graph(nn.Module):
    """From stored samples to features of length as the network gives them, or 1 if windows are averaged."""

    def __init__(self, embedder: Embedder):
        super().__init__()
        self.network, self.mirror = embedder.network, embedder.preprocessing.mirror
        self.normalize = embedder.preprocessing.normalize

    def forward(self, stored: Tensor) -> Tensor:
        x = self.normalize(stored)
        return append_mirrored(self._features, x) if self.mirror else self._features(x)

    def _features(self, x: Tensor) -> Tensor:
        return read_features(self.network, x).float()


def _write(graph: nn.Module, images: Tensor, path: str, opset: int, metadata: dict[str, Any], name: str) -> None:
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


def _difference(runtime: Any, path: str, embedder: Embedder, images: Shaped[Tensor, "n ..."]) -> float:
    """Return the largest relative difference over images given together and the first one alone."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    largest = 0.0
    for part in (images, images[:1]):
        wanted = _compute(embedder, part)
        try:
            found = session.run(None, {embedder.preprocessing.input_name: part.cpu().numpy()})[0]
        except Exception as error:  # onnxruntime's own errors share no root
            reason = " ".join(str(error).split())
            raise ValueError(f"the ONNX graph does not run on a batch of {len(part)}: {reason}") from error
        got = torch.from_numpy(np.asarray(found)).double()
        if got.shape != wanted.shape:
            raise ValueError(
                f"the ONNX graph gives features {tuple(got.shape)} where torch gives {tuple(wanted.shape)}"
            )
        largest = max(largest, _relative(wanted, got))
    if not largest <= CLOSE:
        raise ValueError(
            f"features of the ONNX graph differ from torch by {largest:.2g} of their length, "
            f"more than {CLOSE:g}; the file was not kept"
        )
    return largest


def _compute(embedder: Embedder, stored: Tensor) -> Tensor:
    with torch.no_grad(), evaluation_mode(embedder.network):
        return embedder.of_inputs(embedder.preprocessing.normalize(stored.to(embedder.device))).double().cpu()


def _relative(wanted: Float[Tensor, "n d"], got: Float[Tensor, "n d"]) -> float:
    length = wanted.norm(dim=1).clamp_min(1e-12)
    return float(((wanted - got).norm(dim=1) / length).max())


def _metadata(embedder: Embedder) -> dict[str, Any]:
    return {
        "format": "hypersphere-onnx/1",
        "fingerprint": embedder.fingerprint,
        "preprocessing": embedder.preprocessing.to_dict(),
        "input": embedder.preprocessing.describe_input(),
        "output": "features: float32 (batch, dim); compare by cosine",
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings of the exporter about its own optional parts."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
