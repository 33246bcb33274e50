"""Imported graphs compute the outputs of onnxruntime, and unsupported operators are refused."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from hypersphere.config import decode
from hypersphere.energy import MHE
from hypersphere.models import UnsupportedOperatorError, graph_network, import_onnx, read_input_shape
from hypersphere.recognition.embedder import NETWORK


def write(path, nodes, inputs, outputs, weights=(), opset=17):
    """Write a graph; ``inputs`` and ``outputs`` map names to shapes."""
    values = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in group.items()]
        for group in (inputs, outputs)
    ]
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(weights).items()]
    graph = helper.make_graph(nodes, "graph", *values, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, path)
    return path


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def one(op, inputs, outputs=("y",), **attributes):
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


X = {"x": [2, 6, 9, 8]}
CASES = {
    "conv": ([one("Conv", "xwb", strides=[2, 1], pads=[1, 0, 1, 0], dilations=[1, 2], group=2)], X, {"w": random(4, 3, 3, 3), "b": random(4)}),  # noqa: E501
    "conv, uneven padding": ([one("Conv", "xw", pads=[0, 1, 2, 0])], X, {"w": random(4, 6, 3, 2)}),
    "batch norm": ([one("BatchNormalization", "xwbmv", epsilon=1e-3)], X, {"w": random(6), "b": random(6, seed=1), "m": random(6, seed=2), "v": random(6) ** 2 + 1}),  # noqa: E501
    "prelu": ([one("PRelu", "xw")], X, {"w": random(6, 1, 1)}),
    "gemm": ([one("Flatten", "x", "f"), one("Gemm", "fwb", alpha=0.5, beta=2.0, transB=1)], X, {"w": random(5, 432), "b": random(5)}),
    "matmul": ([one("Flatten", "x", "f"), one("MatMul", "fw")], X, {"w": random(432, 3)}),
    "max pool": ([one("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0])], X, {}),
    "average pool": ([one("AveragePool", "x", kernel_shape=[3, 3], strides=[1, 2], pads=[1, 1, 1, 1])], X, {}),
    "average pool, padding counted": ([one("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)], X, {}),
    "global pool": ([one("GlobalAveragePool", "x")], X, {}),
    "reshape": ([one("Reshape", "xs")], X, {"s": np.array([2, -1, 4], dtype=np.int64)}),
    "transpose": ([one("Transpose", "x", perm=[0, 2, 3, 1])], X, {}),
    "resize": ([one("Resize", ["x", "", "s"], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")], X, {"s": np.array([1, 1, 2, 3], dtype=np.float32)}),  # noqa: E501
    "concat": ([one("Relu", "x", "r"), one("Concat", "xr", axis=1)], X, {}),
    "arithmetic": ([one("Sub", "xa", "p"), one("Mul", "pb", "q"), one("Div", "qc", "r"), one("Add", "rx")], X, {"a": random(1), "b": random(6, 1, 1), "c": np.float32([3.0])}),  # noqa: E501
    "hard swish": ([one("HardSwish", "x")], X, {}),
    "hard sigmoid": ([one("HardSigmoid", "x", alpha=0.17, beta=0.4)], X, {}),
    "clip": ([one("Clip", "xab")], X, {"a": np.float32(-0.3), "b": np.float32(0.6)}),
    "leaky relu, elu": ([one("LeakyRelu", "x", "p", alpha=0.2), one("Elu", "p", alpha=0.7)], X, {}),
    "sigmoid, tanh, sqrt, exp": ([one("Sigmoid", "x", "p"), one("Sqrt", "p", "q"), one("Tanh", "q", "r"), one("Exp", "r")], X, {}),
    "reduce": ([one("ReduceMean", "x", "p", axes=[2], keepdims=1), one("ReduceL2", "p", axes=[1], keepdims=0)], X, {}),
    "softmax": ([one("Softmax", "x", axis=1)], X, {}),
    "squeeze": ([one("Unsqueeze", "xa", "p"), one("Squeeze", "pa")], X, {"a": np.array([1], dtype=np.int64)}),
    "dropout": ([one("Dropout", "x")], X, {}),
    "lstm": ([one("LSTM", "xwrb", hidden_size=4)], {"x": [5, 2, 3]}, {"w": random(1, 16, 3), "r": random(1, 16, 4, seed=1), "b": random(1, 32, seed=2)}),  # noqa: E501
    "lstm, both directions": ([one("LSTM", "xwr", hidden_size=4, direction="bidirectional")], {"x": [5, 2, 3]}, {"w": random(2, 16, 3), "r": random(2, 16, 4, seed=1)}),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_operator_agrees_with_onnxruntime(name, tmp_path):
    nodes, inputs, weights = CASES[name]
    path = write(tmp_path / "g.onnx", nodes, inputs, {"y": None}, weights)
    network = import_onnx(path)  # raises if the outputs differ from those of onnxruntime
    again = decode({"call": "GraphNetwork", "graph": network.graph}, NETWORK, "network").build()
    again.load_state_dict(network.state_dict())
    x = torch.randn(*inputs["x"])
    torch.testing.assert_close(again.eval()(x), network(x))


def small(tmp_path, batch=1):
    nodes = [
        one("Conv", "xw", "a", pads=[1, 1, 1, 1]),
        one("PRelu", "as", "b"),
        one("Reshape", "bt", "c"),
        one("Gemm", "cv"),
    ]
    weights = {"w": random(8, 3, 3, 3), "s": random(8, 1, 1), "t": np.array([batch, 8 * 16]), "v": random(128, 5)}
    return write(tmp_path / "small.onnx", nodes, {"x": [batch, 3, 4, 4]}, {"y": [batch, 5]}, weights)


def test_a_static_batch_becomes_any_batch(tmp_path):
    network = import_onnx(small(tmp_path))
    x = torch.randn(7, 3, 4, 4)
    assert network(x).shape == (7, 5)
    torch.testing.assert_close(network(x)[3:4], network(x[3:4]))
    assert read_input_shape(tmp_path / "small.onnx") == (3, 4, 4)


def test_the_network_trains_and_its_layers_are_torchs(tmp_path):
    network = import_onnx(small(tmp_path)).train()
    assert [type(layer) for layer in network.layers.values()] == [nn.Conv2d, nn.PReLU, nn.Linear]
    network(torch.randn(2, 3, 4, 4)).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())
    assert MHE(network)().isfinite()


def test_an_unsupported_operator_is_named_with_its_node(tmp_path):
    path = write(tmp_path / "g.onnx", [helper.make_node("Sin", ["x"], ["y"], name="waves")], X, {"y": None})
    with pytest.raises(
        UnsupportedOperatorError, match=r"g\.onnx: operator Sin of node waves is not supported; supported are Add"
    ):
        import_onnx(path)


def test_damaged_files_end_in_one_sentence(tmp_path):
    whole = small(tmp_path).read_bytes()
    for name, content in {
        "empty": b"",
        "text": b"not a model",
        "cut": whole[: len(whole) // 2],
        "zeros": bytes(100),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=r"is not a readable ONNX file|is not a graph that can be imported"):
            import_onnx(tmp_path / name)
    with pytest.raises(ValueError, match="there is no file"):
        import_onnx(tmp_path / "none.onnx")


def test_weights_in_other_files_are_not_followed(tmp_path):
    path = small(tmp_path)
    model = onnx.load(path)
    (tmp_path / "secret").write_bytes(bytes(8 * 27 * 4))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret")
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"stores its weights in other files|is not a readable ONNX file"):
        import_onnx(path)


def test_a_network_that_differs_from_onnxruntime_is_refused(tmp_path, monkeypatch):
    path = small(tmp_path)
    monkeypatch.setitem(graph_network.LAYERS, "PRelu", lambda a: Off(a["num_parameters"]))
    with pytest.raises(ValueError, match="differs from onnxruntime at y by"):
        import_onnx(path)


class Off(nn.PReLU):
    def forward(self, x):
        return super().forward(x) * 1.001
