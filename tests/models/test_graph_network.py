import json

import pytest
import torch

from hypersphere.config import Call
from hypersphere.models import GraphNetwork, UnsupportedOperatorError


def graph(*nodes, inputs=("x",), outputs=("y",), constants=None):
    return json.dumps({"inputs": inputs, "outputs": outputs, "nodes": nodes, "constants": constants or {}})


def node(op, inputs, outputs, **attributes):
    return {"op": op, "inputs": list(inputs), "outputs": list(outputs), "attributes": attributes}


def test_an_unknown_operator_is_named():
    with pytest.raises(UnsupportedOperatorError, match="operator Os of node y is not supported"):
        GraphNetwork(graph(node("Os", "x", "y")))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"inputs": 1}'])
def test_graphs_that_are_not_graphs_are_refused(text):
    with pytest.raises(ValueError, match="graph must be the JSON of a graph"):
        Call(GraphNetwork, {"graph": text}).build()


def test_values_are_freed_but_outputs_stay():
    network = GraphNetwork(graph(node("Relu", "x", "a"), node("Add", "ax", "y"), outputs=("y", "a")))
    x = torch.randn(3)
    y, a = network(x)
    assert torch.equal(y, x.relu() + x)
    assert torch.equal(a, x.relu())


def test_constants_are_buffers_and_travel_with_the_network():
    network = GraphNetwork(graph(node("Mul", "xc", "y"), constants={"c": [1]}))
    network.load_state_dict({"constant_c": torch.tensor([3.0])})
    assert network.double()(torch.ones(2).double()).tolist() == [3.0, 3.0]


def test_the_number_of_inputs_is_checked():
    with pytest.raises(ValueError, match="the graph has the inputs x, got 2 tensors"):
        GraphNetwork(graph(node("Relu", "x", "y")))(torch.ones(1), torch.ones(1))
