"""ONNX, for tests: export a module and run it with onnxruntime."""

import io
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn


def onnx_outputs(module: nn.Module, *inputs: Tensor, example: tuple[Tensor, ...] | None = None) -> list[Tensor]:
    """Return the outputs of ``module`` exported to ONNX and run by onnxruntime on ``inputs``.

    With ``example``, the module is exported on it with a first axis of any length, then run on ``inputs``.
    """
    onnxruntime = pytest.importorskip(
        "onnxruntime", reason="needs the extra export: pip install 'torch-hypersphere[export]'"
    )

    shapes = None if example is None else tuple({0: torch.export.Dim("batch")} for _ in inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations
        program: Any = torch.onnx.export(
            module.eval(), example or inputs, dynamo=True, verbose=False, dynamic_shapes=shapes
        )
    buffer = io.BytesIO()
    program.save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
    feed = {node.name: x.detach().numpy() for node, x in zip(session.get_inputs(), inputs, strict=True)}
    return [torch.from_numpy(y) for y in session.run(None, feed)]
