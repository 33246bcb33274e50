import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from hypersphere import angular, operators
from hypersphere.operators import magnitudes
from hypersphere.operators.recurrent import Products, check_state, gru_step, lstm_step, rnn_step
from tests.export import onnx_outputs

CELLS = ["RNNCell", "GRUCell", "LSTMCell"]


def hidden(output):
    return output[0] if isinstance(output, tuple) else output


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("bias", [True, False])
def test_the_inner_product_is_torchs_cell(kind, bias):
    ours, plain = (
        getattr(operators, kind)(4, 6, bias, magnitude=magnitudes.InnerProduct()),
        getattr(nn, kind)(4, 6, bias),
    )
    assert ours.load_state_dict(plain.state_dict())
    x, state = torch.randn(3, 4), torch.randn(3, 6)
    state = (state, torch.randn(3, 6)) if kind == "LSTMCell" else state
    for given in (None, state):
        assert torch.allclose(hidden(ours(x, given)), hidden(plain(x, given)), atol=1e-6)
    assert torch.allclose(hidden(ours(x[0])), hidden(plain(x[0])), atol=1e-6)


def test_a_cell_with_relu():
    ours, plain = (
        operators.RNNCell(4, 6, nonlinearity="relu", magnitude=magnitudes.InnerProduct()),
        nn.RNNCell(4, 6, nonlinearity="relu"),
    )
    ours.load_state_dict(plain.state_dict())
    x = torch.randn(3, 4)
    assert torch.allclose(ours(x), plain(x), atol=1e-6)


def test_the_step_of_the_text_by_hand():
    cell = operators.RNNCell(4, 6, dtype=torch.float64)
    x, h = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    cosine = lambda a, w: nn.functional.cosine_similarity(a[:, None], w[None], dim=-1)
    expected = torch.tanh(cosine(x, cell.weight_ih) + cell.bias_ih + cosine(h, cell.weight_hh) + cell.bias_hh)
    assert torch.allclose(cell(x, h), expected, atol=1e-12)


@pytest.mark.parametrize("kind", CELLS)
def test_the_length_of_the_input_does_not_matter_and_gradients_are_finite(kind):
    cell, x = getattr(operators, kind)(4, 6), torch.randn(3, 4, requires_grad=True)
    out = hidden(cell(x))
    assert torch.allclose(out, hidden(cell(50 * x)), atol=1e-5)
    out.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in (x, *cell.parameters()))


@pytest.mark.parametrize("kind", CELLS)
def test_each_weight_has_separate_learned_parameters(kind):
    cell = getattr(operators, kind)(
        4, 6, magnitude=magnitudes.Ball(learnable_radius=True), angular=angular.Sigmoid(learnable="layer")
    )
    cell(torch.randn(3, 4))
    assert cell.products.magnitude_ih is not cell.products.magnitude_hh
    assert cell.products.magnitude_ih.radius.log_rho.shape == cell.weight_ih.shape[:1]
    assert cell.products.angular_ih is not cell.products.angular_hh


@pytest.mark.parametrize("kind", CELLS)
def test_copies(kind):
    cell, x = getattr(operators, kind)(4, 6), torch.randn(3, 4)
    for other in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell))):
        assert torch.equal(hidden(other(x)), hidden(cell(x)))


@pytest.mark.untyped
def test_a_cell_refuses():
    with pytest.raises(ValueError, match="nonlinearity must be"):
        operators.RNNCell(4, 6, nonlinearity="gelu")
    with pytest.raises(ValueError, match=r"the state must be 1 tensor\(s\) of shape \(3, 6\), got \[\(2, 6\)\]"):
        operators.GRUCell(4, 6)(torch.zeros(3, 4), torch.zeros(2, 6))


KINDS = ["RNN", "GRU", "LSTM"]
SETTINGS = [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"num_layers": 2, "bias": False}]


def tensors(output):
    out, last = output
    return [out, *(last if isinstance(last, tuple) else [last])]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_inner_product_is_torchs_network(kind, settings):
    ours, plain = (
        getattr(operators, kind)(4, 6, **settings, magnitude=magnitudes.InnerProduct()),
        getattr(nn, kind)(4, 6, **settings),
    )
    assert list(ours.state_dict()) == list(plain.state_dict())
    ours.load_state_dict(plain.state_dict())
    for x in (torch.randn(5, 3, 4), torch.randn(5, 4)):
        first, expected = ours(x), plain(x)
        for a, b in zip(tensors(first), tensors(expected), strict=True):
            assert torch.allclose(a, b, atol=1e-6)
        for a, b in zip(tensors(ours(x, first[1])), tensors(plain(x, expected[1])), strict=True):
            assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_is_a_loop_over_its_cell(kind):
    network, cell = getattr(operators, kind)(4, 6), getattr(operators, f"{kind}Cell")(4, 6)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in network.state_dict().items()})
    x, state, outputs = torch.randn(5, 3, 4), None, []
    for row in x:
        state = cell(row, state)
        outputs.append(state[0] if kind == "LSTM" else state)
    assert torch.allclose(network(x)[0], torch.stack(outputs), atol=1e-6)


def test_dropout_between_layers_in_training_only():
    network, x = operators.GRU(4, 6, num_layers=2, dropout=0.5), torch.randn(5, 3, 4)
    assert not torch.equal(network(x)[0], network(x)[0])
    network.eval()
    assert torch.equal(network(x)[0], network(x)[0])


def test_learns_and_copies():
    network = operators.LSTM(4, 6, bidirectional=True, magnitude=magnitudes.Tanh(learnable_radius=True))
    x = torch.randn(5, 3, 4)
    network(x)[0].sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in network.parameters())
    assert any("log_rho" in name for name, _ in network.named_parameters())
    network.eval()
    assert torch.equal(copy.deepcopy(network)(x)[0], network(x)[0])


def test_a_network_with_relu():
    ours = operators.RNN(4, 6, nonlinearity="relu")
    assert (ours(torch.randn(5, 3, 4))[0] >= 0).all()


@pytest.mark.untyped
def test_compiles_and_exports():
    torch._dynamo.reset()
    network, x = operators.GRU(4, 6).eval(), torch.randn(3, 2, 4)
    expected = network(x)[0]
    with torch._dynamo.config.patch(allow_rnn=True):  # otherwise torch.compile refuses subclasses of nn.RNNBase
        assert torch.allclose(torch.compile(network, fullgraph=True, backend="aot_eager")(x)[0], expected, atol=1e-6)
    assert torch.allclose(onnx_outputs(network, x)[0], expected, atol=1e-5)


@pytest.mark.untyped
def test_a_network_refuses():
    network = operators.LSTM(4, 6)
    with pytest.raises(ValueError, match="got a PackedSequence"):
        network(pack_sequence([torch.zeros(2, 4)]))
    with pytest.raises(ValueError, match=r"input must be \(time, batch, 4\) or \(time, 4\), got shape \(2, 3\)"):
        network(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"the state must be 2 tensor\(s\) of shape \(1, 3, 6\)"):
        network(torch.zeros(2, 3, 4), torch.zeros(1, 3, 6))
    with pytest.raises(ValueError, match="proj_size must be 0, got 2"):
        operators.LSTM(4, 6, proj_size=2)


@pytest.mark.parametrize(
    ("kind", "step", "states"), [("RNNCell", rnn_step("tanh"), 1), ("GRUCell", gru_step, 1), ("LSTMCell", lstm_step, 2)]
)
def test_a_step_of_plain_products_is_torchs(kind, step, states):
    cell = getattr(nn, kind)(4, 6, dtype=torch.float64)
    x, state = (
        torch.randn(3, 4, dtype=torch.float64),
        tuple(torch.randn(3, 6, dtype=torch.float64) for _ in range(states)),
    )
    products = Products(cell.weight_ih, cell.weight_hh, magnitudes.InnerProduct(), None)
    new = step(products.ih(x, cell.weight_ih, cell.bias_ih), products.hh(state[0], cell.weight_hh, cell.bias_hh), state)
    expected = cell(x, state if states == 2 else state[0])
    expected = expected if states == 2 else (expected,)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(new, expected, strict=True))


def test_a_state_is_a_tensor_or_several():
    one = torch.zeros(2, 3)
    assert check_state(one, 1, (2, 3)) == (one,)
    assert len(check_state([one, one], 2, (2, 3))) == 2
    with pytest.raises(ValueError, match="the state must be 2 tensor"):
        check_state(one, 2, (2, 3))
