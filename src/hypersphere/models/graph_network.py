"""A network described by a graph of standard operators, as other frameworks export it."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Attributes = Mapping[str, Any]


class UnsupportedOperatorError(ValueError):
    """An operator of a graph that :class:`GraphNetwork` cannot run.

    >>> GraphNetwork('{"inputs": [], "outputs": [], "nodes": [{"op": "Sin", "outputs": ["y"]}], "constants": {}}')
    Traceback (most recent call last):
    ...
    hypersphere.models.graph_network.UnsupportedOperatorError: operator Sin of node y is not supported; supported are ...
    """


class GraphNetwork(nn.Module):
    """A network that runs a graph of operators, node by node.

    Operators with weights are ordinary torch layers (``nn.Conv2d``, ``nn.Linear``, ``nn.BatchNorm2d``, ``nn.PReLU``,
    ``nn.LSTM``) in ``layers``. Therefore the network can be fine-tuned, converted to other operators, regularized by
    MHE, tuned orthogonally and exported like any other. :func:`hypersphere.models.import_onnx` writes the graph.

    Args:
        graph: JSON text with ``inputs`` and ``outputs`` (names), ``nodes`` (``op``, ``inputs``, ``outputs``,
            ``attributes``) and ``constants`` (name to shape). Nothing in it is executed: ``op`` selects from a fixed list.

    Raises:
        UnsupportedOperatorError: If a node has an operator that is not on the list.
        ValueError: If the text is not such a graph.

    >>> node = {"op": "Relu", "inputs": ["x"], "outputs": ["y"], "attributes": {}}
    >>> net = GraphNetwork(json.dumps({"inputs": ["x"], "outputs": ["y"], "nodes": [node], "constants": {}}))
    >>> net(torch.tensor([[-1.0, 2.0]]))
    tensor([[0., 2.]])
    """

    def __init__(self, graph: str):
        super().__init__()
        self.graph = graph
        try:
            content = json.loads(graph)
            self.inputs, self.outputs = list(content["inputs"]), list(content["outputs"])
            nodes, constants = list(content["nodes"]), dict(content["constants"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(
                f"graph must be the JSON of a graph with inputs, outputs, nodes and constants: {error}"
            ) from error
        self.layers = nn.ModuleDict()
        self.steps: list[tuple[str, list[str], list[str], Attributes]] = []
        for node in nodes:
            op, attributes = node["op"], node.get("attributes", {})
            if op in LAYERS:
                self.layers[get_layer_key(node["outputs"][0])] = LAYERS[op](attributes)
            elif op not in FUNCTIONS:
                raise UnsupportedOperatorError(
                    f"operator {op} of node {node.get('name') or node['outputs'][0]} is not supported; supported are "
                    f"{', '.join(sorted([*LAYERS, *FUNCTIONS]))}"
                )
            self.steps.append((op, list(node["inputs"]), list(node["outputs"]), attributes))
        for name, shape in constants.items():
            self.register_buffer(get_buffer_name(name), torch.zeros(shape))
        self.constants = {name: get_buffer_name(name) for name in constants}
        # The number of the last step that reads each value, after which `forward` frees it.
        self._last_use = {name: i for i, (_, inputs, _, _) in enumerate(self.steps) for name in inputs}

    def forward(self, *inputs: Tensor) -> Any:
        """Run the graph.

        Args:
            *inputs: One tensor per input of the graph. The first dimension is the batch and may differ from the exported one.

        Returns:
            The output, or a tuple if the graph has several outputs.

        Raises:
            ValueError: If the number of tensors differs from the number of inputs.
        """
        if len(inputs) != len(self.inputs):
            raise ValueError(f"the graph has the inputs {', '.join(self.inputs)}, got {len(inputs)} tensors")
        values: dict[str, Any] = dict(zip(self.inputs, inputs, strict=True))
        values |= {name: getattr(self, attribute) for name, attribute in self.constants.items()}
        batch = inputs[0].shape[0]
        for i, (op, names, outputs, attributes) in enumerate(self.steps):
            arguments = [values[name] if name else None for name in names]
            if op in LAYERS:
                result = self.layers[get_layer_key(outputs[0])](*arguments)
            else:
                result = FUNCTIONS[op](arguments, attributes, batch)
            values |= zip(outputs, result if isinstance(result, tuple) else (result,), strict=False)
            for name in names:
                if self._last_use[name] == i and name not in self.outputs:
                    values.pop(name, None)
        results = tuple(values[name] for name in self.outputs)
        return results[0] if len(results) == 1 else results


def get_layer_key(output: str) -> str:
    """Return the key in ``layers`` of the node with this output. Keys of a ``ModuleDict`` have no dots."""
    return "layer_" + "".join(letter if letter.isalnum() else "_" for letter in output)


def get_buffer_name(name: str) -> str:
    """Return the name of the buffer that holds a constant."""
    return "constant_" + "".join(letter if letter.isalnum() else "_" for letter in name)


class _PaddedConv(nn.Module):
    """A convolution whose padding differs between the sides, which torch's own layers cannot express."""

    def __init__(self, conv: nn.Module, padding: Sequence[int]):
        super().__init__()
        self.conv, self.padding = conv, list(padding)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, self.padding))  # type: ignore[no-any-return]


class _Recurrent(nn.Module):
    """One LSTM node of ONNX: from (time, batch, features) to all states, the last state and the last cell."""

    def __init__(self, attributes: Attributes):
        super().__init__()
        self.directions = 2 if attributes["bidirectional"] else 1
        sizes = (attributes["input_size"], attributes["hidden_size"])
        self.lstm = nn.LSTM(*sizes, bias=attributes["bias"], bidirectional=attributes["bidirectional"])

    def forward(self, x: Tensor, *states: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        start = [state for state in states if state is not None]
        out, (last, cell) = self.lstm(x, tuple(start)) if len(start) == 2 else self.lstm(x)
        time, batch = x.shape[:2]
        return out.reshape(time, batch, self.directions, -1).transpose(1, 2), last, cell


def _build_conv(attributes: Attributes) -> nn.Module:
    kind: Any = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[len(attributes["kernel_size"])]
    options = {key: attributes[key] for key in ("stride", "dilation", "groups", "bias")}
    sizes = (attributes["in_channels"], attributes["out_channels"], tuple(attributes["kernel_size"]))
    before, after = attributes["pads_before"], attributes["pads_after"]
    if list(before) == list(after):
        return kind(*sizes, padding=tuple(before), **options)
    sides = [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]
    return _PaddedConv(kind(*sizes, **options), sides)


def _build_batch_norm(attributes: Attributes) -> nn.Module:
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[attributes["dimensions"]]
    return kind(attributes["num_features"], eps=attributes["eps"], momentum=attributes["momentum"])


LAYERS: dict[str, Callable[[Attributes], nn.Module]] = {
    "Conv": _build_conv,
    "BatchNormalization": _build_batch_norm,
    "PRelu": lambda a: nn.PReLU(a["num_parameters"]),
    "Linear": lambda a: nn.Linear(a["in_features"], a["out_features"], bias=a["bias"]),
    "LSTM": _Recurrent,
    "Dropout": lambda a: nn.Dropout(a["ratio"]),
}


def _pool(x: Tensor, attributes: Attributes, function: Callable[..., Tensor], **options: Any) -> Tensor:
    before, after = attributes["pads_before"], attributes["pads_after"]
    if list(before) != list(after):
        raise UnsupportedOperatorError("pooling with different padding on the two sides is not supported")
    return function(
        x, attributes["kernel_size"], attributes["stride"], padding=before, ceil_mode=attributes["ceil_mode"], **options
    )


def _max_pool(values: list[Any], attributes: Attributes, batch: int) -> Tensor:
    return _pool(values[0], attributes, {3: F.max_pool1d, 4: F.max_pool2d, 5: F.max_pool3d}[values[0].ndim])


def _average_pool(values: list[Any], attributes: Attributes, batch: int) -> Tensor:
    function = {3: F.avg_pool1d, 4: F.avg_pool2d, 5: F.avg_pool3d}[values[0].ndim]
    return _pool(values[0], attributes, function, count_include_pad=attributes["count_include_pad"])


def _reshape(values: list[Any], attributes: Attributes, batch: int) -> Tensor:
    """Reshape to the stored shape. A first entry equal to the exported batch size stands for any batch."""
    x, shape = values[0], list(attributes["shape"])
    if shape[0] == attributes["batch"] and x.shape[0] == batch:
        shape[0] = batch
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(shape)])


def _resize(values: list[Any], attributes: Attributes, batch: int) -> Tensor:
    return F.interpolate(values[0], scale_factor=tuple(attributes["scales"]), mode="nearest")


def _clip(values: list[Any], attributes: Attributes, batch: int) -> Tensor:
    return values[0].clamp(attributes["min"], attributes["max"])  # type: ignore[no-any-return]


def _reduce(function: Callable[..., Tensor]) -> Callable[[list[Any], Attributes, int], Tensor]:
    return lambda values, a, batch: function(values[0], dim=tuple(a["axes"]), keepdim=a["keepdims"])


def _apply(function: Callable[..., Any]) -> Callable[[list[Any], Attributes, int], Any]:
    return lambda values, attributes, batch: function(*values)


FUNCTIONS: dict[str, Callable[[list[Any], Attributes, int], Any]] = {
    "Add": _apply(torch.add),
    "AveragePool": _average_pool,
    "Clip": _clip,
    "Concat": lambda values, a, batch: torch.cat(values, a["axis"]),
    "Div": _apply(torch.div),
    "Elu": lambda values, a, batch: F.elu(values[0], a["alpha"]),
    "Exp": _apply(torch.exp),
    "Flatten": lambda values, a, batch: values[0].flatten(a["axis"]),
    "Gelu": _apply(F.gelu),
    "GlobalAveragePool": lambda values, a, batch: (
        values[0].flatten(2).mean(2).reshape(*values[0].shape[:2], *[1] * (values[0].ndim - 2))
    ),
    "HardSigmoid": lambda values, a, batch: (values[0] * a["alpha"] + a["beta"]).clamp(0, 1),
    "HardSwish": _apply(F.hardswish),
    "Identity": lambda values, a, batch: values[0],
    "LeakyRelu": lambda values, a, batch: F.leaky_relu(values[0], a["alpha"]),
    "MatMul": _apply(torch.matmul),
    "MaxPool": _max_pool,
    "Mul": _apply(torch.mul),
    "Pow": _apply(torch.pow),
    "ReduceL2": _reduce(torch.linalg.vector_norm),
    "ReduceMean": _reduce(torch.mean),
    "ReduceSum": _reduce(torch.sum),
    "Relu": _apply(F.relu),
    "Reshape": _reshape,
    "Resize": _resize,
    "Sigmoid": _apply(torch.sigmoid),
    "Softmax": lambda values, a, batch: values[0].softmax(a["axis"]),
    "Sqrt": _apply(torch.sqrt),
    "Squeeze": lambda values, a, batch: values[0].squeeze(tuple(a["axes"])),
    "Sub": _apply(torch.sub),
    "Tanh": _apply(torch.tanh),
    "Transpose": lambda values, a, batch: values[0].permute(a["perm"]),
    "Unsqueeze": lambda values, a, batch: _unsqueeze(values[0], a["axes"]),
}


def _unsqueeze(x: Tensor, axes: Sequence[int]) -> Tensor:
    for axis in sorted(axes):
        x = x.unsqueeze(axis)
    return x
