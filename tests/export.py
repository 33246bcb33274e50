"""ONNX, for tests: export a module and run it with onnxruntime."""

import io
import warnings
from typing import Any

import torch
from torch import Tensor, nn


def onnx_outputs(module: nn.Module, *inputs: Tensor) -> list[Tensor]:
    """The outputs of ``module`` exported to ONNX and run by onnxruntime on the same inputs."""
    import onnxruntime

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations
        program: Any = torch.onnx.export(module.eval(), inputs, dynamo=True, verbose=False)
    buffer = io.BytesIO()
    program.save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
    feed = {node.name: x.detach().numpy() for node, x in zip(session.get_inputs(), inputs, strict=True)}
    return [torch.from_numpy(y) for y in session.run(None, feed)]
