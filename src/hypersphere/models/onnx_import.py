"""Import of networks from ONNX files: a graph of standard operators becomes a :class:`GraphNetwork`."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._extras import require
from .graph_network import FUNCTIONS, LAYERS, GraphNetwork, UnsupportedOperatorError, get_buffer_name, get_layer_key

MAX_RELATIVE_DIFFERENCE = 1e-5  # between the outputs of the imported network and of onnxruntime
MAX_FILE_BYTES = 2 * 1024**3  # the limit of the protobuf format


def import_onnx(path: str | os.PathLike[str], *, compare: bool = True, samples: Tensor | None = None) -> GraphNetwork:
    """Return the network of an ONNX file as a torch module with its weights.

    Args:
        path: The ONNX file.
        compare: Run the file with onnxruntime on random input, and on ``samples`` if given, and compare the outputs.
        samples: A real input batch for the comparison.

    Returns:
        The network in evaluation mode. It accepts any batch size.

    Raises:
        UnsupportedOperatorError: If the graph has an operator that cannot be run. The message names the node.
        ValueError: If the file is not a readable ONNX file, or the relative difference from onnxruntime exceeds 1e-5.

    >>> network = import_onnx("face_recognition_sface_2021dec.onnx")  # doctest: +SKIP
    """
    model = _read_model(path)
    try:
        graph, weights = _translate_graph(model)
        network = GraphNetwork(json.dumps(graph))
        network.load_state_dict(weights)
    except UnsupportedOperatorError as error:
        raise UnsupportedOperatorError(f"{path}: {error}") from error
    except (KeyError, IndexError, TypeError, RuntimeError, AttributeError) as error:
        raise ValueError(f"{path} is not a graph that can be imported: {error}") from error
    network.eval()
    if compare:
        _compare_with_onnxruntime(path, model, network, samples)
    return network


def read_input_shape(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Return the shape of the first input of an ONNX file without its batch dimension. Unknown sizes are 0.

    Args:
        path: The ONNX file.

    Raises:
        ValueError: If the file is not a readable ONNX file or has no input.

    >>> read_input_shape("face_recognition_sface_2021dec.onnx")  # doctest: +SKIP
    (3, 112, 112)
    """
    inputs = _list_inputs(_read_model(path).graph)
    if not inputs:
        raise ValueError(f"{path} is not a graph that can be imported: it has no input")
    return tuple(inputs[0][1][1:])


def _read_model(path: str | os.PathLike[str]) -> Any:
    onnx = require("onnx", "models")
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"there is no file {path}")
    if file.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"{path} has {file.stat().st_size} bytes; at most {MAX_FILE_BYTES} are read")
    try:
        # Weights in other files are not followed: a path inside the file could lead anywhere.
        model = onnx.load(str(file), load_external_data=False)
    except Exception as error:  # the parser raises many types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} is not a readable ONNX file: {reason}") from error
    if any(tensor.external_data for tensor in model.graph.initializer):
        raise ValueError(f"{path} stores its weights in other files; save it as one file")
    return model


def _list_inputs(graph: Any) -> list[tuple[str, list[int]]]:
    stored = {tensor.name for tensor in graph.initializer}
    return [
        (value.name, [int(d.dim_value) for d in value.type.tensor_type.shape.dim])
        for value in graph.input
        if value.name not in stored
    ]


def _translate_graph(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the graph as plain values and the weights by their names in the state of a :class:`GraphNetwork`."""
    onnx = require("onnx", "models")
    graph = model.graph
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    inputs = _list_inputs(graph)
    builder = _Builder(stored, _infer_ranks(model), inputs[0][1][0] if inputs[0][1] else 0)
    for node in graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        builder.translate(node.op_type, node.name, list(node.input), list(node.output), attributes)
    content = {
        "inputs": [name for name, _ in inputs],
        "outputs": [value.name for value in graph.output],
        "nodes": builder.nodes,
        "constants": {name: list(value.shape) for name, value in builder.constants.items()},
    }
    weights = dict(builder.weights)
    weights |= {get_buffer_name(name): value for name, value in builder.constants.items()}
    return content, weights


def _infer_ranks(model: Any) -> dict[str, int]:
    onnx = require("onnx", "models")
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # only batch normalization needs the shapes, and it then assumes four dimensions
        inferred = model.graph
    known = [*inferred.value_info, *inferred.input, *inferred.output]
    return {value.name: len(value.type.tensor_type.shape.dim) for value in known}


class _Builder:
    """The translated nodes, the weights of layers and the float constants of a graph."""

    def __init__(self, stored: Mapping[str, np.ndarray], ranks: Mapping[str, int], batch: int):
        self.stored, self.ranks, self.batch = dict(stored), ranks, batch
        self.nodes: list[dict[str, Any]] = []
        self.weights: dict[str, Tensor] = {}
        self.constants: dict[str, Tensor] = {}

    def translate(
        self, op: str, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
    ) -> None:
        if op == "Constant":
            self.stored[outputs[0]] = _read_constant(attributes)
            return
        if op not in TRANSLATIONS:
            known = ", ".join(sorted(TRANSLATIONS))
            raise UnsupportedOperatorError(
                f"operator {op} of node {name or outputs[0]} is not supported; supported are {known}"
            )
        TRANSLATIONS[op](self, name, inputs, outputs, attributes)

    def add_node(self, op: str, name: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        """Append a node. Inputs that are stored in the file become constants."""
        for value in inputs:
            if value in self.stored and value not in self.constants:
                self.constants[value] = torch.from_numpy(np.array(self.stored[value])).float()
        assert op in LAYERS or op in FUNCTIONS
        self.nodes.append({"op": op, "name": name, "inputs": inputs, "outputs": outputs, "attributes": attributes})

    def add_layer(
        self, op: str, name: str, inputs: list[str], outputs: list[str], weights: Mapping[str, Any], **attributes: Any
    ) -> None:
        """Append a node that is a torch layer with weights."""
        self.add_node(op, name, inputs, outputs, **attributes)
        for key, value in weights.items():
            self.weights[f"layers.{get_layer_key(outputs[0])}.{key}"] = torch.from_numpy(
                np.array(value, dtype=np.float32)
            )

    def get_stored(self, name: str, node: str) -> np.ndarray:
        """Return a value that must be stored in the file, such as a weight or a shape."""
        if name not in self.stored:
            raise UnsupportedOperatorError(
                f"node {node} computes its argument {name!r}, which is not supported: it must be stored in the file"
            )
        return self.stored[name]


def _read_constant(attributes: Mapping[str, Any]) -> np.ndarray:
    onnx = require("onnx", "models")
    if "value" in attributes:
        return np.asarray(onnx.numpy_helper.to_array(attributes["value"]))
    return np.asarray(next(iter(attributes.values())))


def _read_geometry(name: str, attributes: Mapping[str, Any], dimensions: int) -> dict[str, Any]:
    """Return stride, dilation and padding of a convolution or pooling, with ONNX's defaults filled in."""
    padding = attributes.get("auto_pad", b"NOTSET").decode()
    if padding not in ("NOTSET", "VALID"):
        raise UnsupportedOperatorError(f"node {name} pads by {padding}; export the network with explicit padding")
    pads = [0] * 2 * dimensions if padding == "VALID" else list(attributes.get("pads", [0] * 2 * dimensions))
    return {
        "stride": list(attributes.get("strides", [1] * dimensions)),
        "dilation": list(attributes.get("dilations", [1] * dimensions)),
        "pads_before": pads[:dimensions],
        "pads_after": pads[dimensions:],
    }


def _translate_conv(
    build: _Builder, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
) -> None:
    weight = build.get_stored(inputs[1], name or outputs[0])
    groups, dimensions = attributes.get("group", 1), weight.ndim - 2
    weights = {"weight": weight} | ({"bias": build.get_stored(inputs[2], name)} if len(inputs) > 2 else {})
    geometry = _read_geometry(name or outputs[0], attributes, dimensions)
    if geometry["pads_before"] != geometry["pads_after"]:
        weights = {f"conv.{key}": value for key, value in weights.items()}
    build.add_layer(
        "Conv", name, inputs[:1], outputs, weights, in_channels=weight.shape[1] * groups, out_channels=weight.shape[0],
        kernel_size=list(weight.shape[2:]), groups=groups, bias=len(inputs) > 2, **geometry,
    )  # fmt: skip


def _translate_batch_norm(
    build: _Builder, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
) -> None:
    weight, bias, mean, variance = (build.get_stored(value, name or outputs[0]) for value in inputs[1:5])
    weights = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": variance}
    build.add_layer(
        "BatchNormalization", name, inputs[:1], outputs[:1], weights, num_features=len(weight),
        eps=float(attributes.get("epsilon", 1e-5)), momentum=1 - float(attributes.get("momentum", 0.9)),
        dimensions=build.ranks.get(inputs[0], 4),
    )  # fmt: skip
    build.weights[f"layers.{get_layer_key(outputs[0])}.num_batches_tracked"] = torch.zeros((), dtype=torch.long)


def _translate_prelu(
    build: _Builder, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
) -> None:
    slope = build.get_stored(inputs[1], name or outputs[0]).reshape(-1)
    build.add_layer("PRelu", name, inputs[:1], outputs, {"weight": slope}, num_parameters=len(slope))


def _translate_gemm(
    build: _Builder, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
) -> None:
    if attributes.get("transA", 0):
        raise UnsupportedOperatorError(f"node {name or outputs[0]} (Gemm) transposes its input, which is not supported")
    weight = build.get_stored(inputs[1], name or outputs[0]) * attributes.get("alpha", 1.0)
    weight = weight if attributes.get("transB", 0) else weight.T
    weights = {"weight": weight}
    if len(inputs) > 2:
        bias = build.get_stored(inputs[2], name or outputs[0]).reshape(-1) * attributes.get("beta", 1.0)
        weights["bias"] = np.broadcast_to(bias, weight.shape[:1])
    build.add_layer(
        "Linear", name, inputs[:1], outputs, weights, in_features=weight.shape[1], out_features=weight.shape[0],
        bias=len(inputs) > 2,
    )  # fmt: skip


def _translate_matmul(
    build: _Builder, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
) -> None:
    if inputs[1] not in build.stored or build.stored[inputs[1]].ndim != 2:
        return build.add_node("MatMul", name, inputs, outputs)
    weight = build.stored[inputs[1]].T
    sizes = {"in_features": weight.shape[1], "out_features": weight.shape[0], "bias": False}
    return build.add_layer("Linear", name, inputs[:1], outputs, {"weight": weight}, **sizes)


def _translate_lstm(
    build: _Builder, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
) -> None:
    direction = attributes.get("direction", b"forward").decode()
    if (
        direction == "reverse"
        or attributes.get("layout", 0)
        or set(attributes) & {"activations", "clip", "input_forget"}
    ):
        raise UnsupportedOperatorError(f"node {name or outputs[0]} is an LSTM of a kind that is not supported")
    if len(inputs) > 4 and inputs[4]:
        raise UnsupportedOperatorError(
            f"node {name or outputs[0]} is an LSTM with sequence lengths, which is not supported"
        )
    w, r = (build.get_stored(value, name or outputs[0]) for value in inputs[1:3])
    bias = build.get_stored(inputs[3], name) if len(inputs) > 3 and inputs[3] else None
    hidden, weights = r.shape[2], {}
    # The gates are input, output, forget, cell in ONNX and input, forget, cell, output in torch.
    order = np.concatenate([np.arange(hidden) + hidden * gate for gate in (0, 2, 3, 1)])
    for d, suffix in zip(range(len(w)), ("", "_reverse"), strict=False):
        weights[f"lstm.weight_ih_l0{suffix}"], weights[f"lstm.weight_hh_l0{suffix}"] = w[d][order], r[d][order]
        if bias is not None:
            weights[f"lstm.bias_ih_l0{suffix}"] = bias[d][: 4 * hidden][order]
            weights[f"lstm.bias_hh_l0{suffix}"] = bias[d][4 * hidden :][order]
    build.add_layer(
        "LSTM", name, [inputs[0], *inputs[5:7]], outputs, weights, input_size=w.shape[2], hidden_size=hidden,
        bias=bias is not None, bidirectional=len(w) == 2,
    )  # fmt: skip


def _translate_pool(
    build: _Builder, op: str, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
) -> None:
    kernel = list(attributes["kernel_shape"])
    if any(step != 1 for step in attributes.get("dilations", [1])):
        raise UnsupportedOperatorError(f"node {name or outputs[0]} is a dilated pooling, which is not supported")
    build.add_node(
        op, name, inputs, outputs[:1], kernel_size=kernel, ceil_mode=bool(attributes.get("ceil_mode", 0)),
        count_include_pad=bool(attributes.get("count_include_pad", 0)), **_read_geometry(name or outputs[0], attributes, len(kernel)),
    )  # fmt: skip


def _translate_reshape(
    build: _Builder, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
) -> None:
    shape = [int(size) for size in build.get_stored(inputs[1], name or outputs[0])]
    build.add_node("Reshape", name, inputs[:1], outputs, shape=shape, batch=build.batch or 1)


def _translate_resize(
    build: _Builder, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
) -> None:
    scales = [float(scale) for scale in build.get_stored(inputs[2], name or outputs[0])]
    whole = all(scale == int(scale) for scale in scales) and scales[:2] == [1.0, 1.0]
    if attributes.get("mode", b"nearest") != b"nearest" or not whole:
        raise UnsupportedOperatorError(
            f"node {name or outputs[0]} (Resize): only nearest-neighbor enlargement by integers is supported"
        )
    build.add_node("Resize", name, inputs[:1], outputs, scales=scales[2:])


def _translate_clip(
    build: _Builder, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
) -> None:
    limits = [float(build.get_stored(value, name)) if value else None for value in inputs[1:3]] + [None, None]
    low, high = attributes.get("min", limits[0]), attributes.get("max", limits[1])
    build.add_node("Clip", name, inputs[:1], outputs, min=low, max=high)


def _copy_axes(op: str) -> Callable[..., None]:
    def write(build: _Builder, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]) -> None:
        axes = attributes["axes"] if "axes" in attributes else build.get_stored(inputs[1], name or outputs[0])
        more = {"keepdims": bool(attributes.get("keepdims", 1))} if op.startswith("Reduce") else {}
        build.add_node(op, name, inputs[:1], outputs, axes=[int(axis) for axis in axes], **more)

    return write


def _copy_attributes(op: str, **defaults: Any) -> Callable[..., None]:
    """Return a translation that copies the attributes named in ``defaults``."""

    def write(build: _Builder, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]) -> None:
        values = {key: attributes.get(key, default) for key, default in defaults.items()}
        plain = {key: list(value) if isinstance(value, list | tuple) else value for key, value in values.items()}
        build.add_node(op, name, inputs, outputs[:1], **plain)

    return write


def _translate_dropout(
    build: _Builder, name: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
) -> None:
    ratio = float(build.get_stored(inputs[1], name)) if len(inputs) > 1 and inputs[1] else attributes.get("ratio", 0.5)
    build.add_node("Dropout", name, inputs[:1], outputs[:1], ratio=float(ratio))


TRANSLATIONS: dict[str, Callable[..., None]] = {
    "BatchNormalization": _translate_batch_norm,
    "Clip": _translate_clip,
    "Conv": _translate_conv,
    "Dropout": _translate_dropout,
    "Gemm": _translate_gemm,
    "LSTM": _translate_lstm,
    "MatMul": _translate_matmul,
    "PRelu": _translate_prelu,
    "Reshape": _translate_reshape,
    "Resize": _translate_resize,
    "MaxPool": lambda build, *node: _translate_pool(build, "MaxPool", *node),
    "AveragePool": lambda build, *node: _translate_pool(build, "AveragePool", *node),
    "Concat": _copy_attributes("Concat", axis=1),
    "Elu": _copy_attributes("Elu", alpha=1.0),
    "Flatten": _copy_attributes("Flatten", axis=1),
    "HardSigmoid": _copy_attributes("HardSigmoid", alpha=0.2, beta=0.5),
    "LeakyRelu": _copy_attributes("LeakyRelu", alpha=0.01),
    "Softmax": _copy_attributes("Softmax", axis=-1),
    "Transpose": _copy_attributes("Transpose", perm=None),
    **{op: _copy_axes(op) for op in ("ReduceL2", "ReduceMean", "ReduceSum", "Squeeze", "Unsqueeze")},
    **{
        op: _copy_attributes(op)
        for op in "Add Div Exp Gelu GlobalAveragePool HardSwish Identity Mul Pow Relu Sigmoid Sqrt Sub Tanh".split()  # noqa: SIM905
    },
}


@torch.no_grad()
def _compare_with_onnxruntime(
    path: str | os.PathLike[str], model: Any, network: GraphNetwork, samples: Tensor | None
) -> None:
    """Raise a ``ValueError`` if onnxruntime computes other outputs from the same input.

    Differences are relative to the norm of the output. The root mean square of the output counts as at least 0.1: onnxruntime
    approximates the sigmoid with an absolute error of about 1e-7, which is large relative to probabilities near zero.
    """
    runtime = require("onnxruntime", "models")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # hide warnings, which are about speed
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    shapes = [(name, [size or 1 for size in shape]) for name, shape in _list_inputs(model.graph)]
    generator = torch.Generator().manual_seed(0)
    batches = [[torch.rand(shape, generator=generator) * 255 for _, shape in shapes]]
    if samples is not None:
        batches += [[sample[None]] for sample in samples]
    for batch in batches:
        inputs = {name: value.numpy() for (name, _), value in zip(shapes, batch, strict=True)}
        expected = [torch.from_numpy(value) for value in session.run(network.outputs, inputs)]
        result = network(*batch)
        outputs = result if isinstance(result, tuple) else (result,)
        for name, reference, output in zip(network.outputs, expected, outputs, strict=True):
            if reference.shape != output.shape:
                raise ValueError(f"{path}: {name} has the shape {tuple(output.shape)}, not {tuple(reference.shape)}")
            difference = _compute_relative_difference(output, reference)
            if not difference <= MAX_RELATIVE_DIFFERENCE:
                raise ValueError(
                    f"{path}: the imported network differs from onnxruntime at {name} by {difference:.1e} (relative); "
                    f"at most {MAX_RELATIVE_DIFFERENCE:.0e} is accepted"
                )


def _compute_relative_difference(value: Tensor, reference: Tensor) -> float:
    reference = reference.double()
    smallest_norm = 0.1 * reference.numel() ** 0.5
    return float((value.double() - reference).norm() / reference.norm().clamp(min=smallest_norm))
