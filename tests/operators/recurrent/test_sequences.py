import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from hypersphere import operators
from hypersphere.operators import magnitudes
from tests.export import onnx_outputs

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


def test_relu():
    ours = operators.RNN(4, 6, nonlinearity="relu")
    assert (ours(torch.randn(5, 3, 4))[0] >= 0).all()


@pytest.mark.untyped
def test_compiles_and_exports():
    torch._dynamo.reset()
    network, x = operators.GRU(4, 6).eval(), torch.randn(3, 2, 4)
    expected = network(x)[0]
    with torch._dynamo.config.patch(
        allow_rnn=True
    ):  # torch.compile refuses everything derived from nn.RNNBase without it
        assert torch.allclose(torch.compile(network, fullgraph=True, backend="aot_eager")(x)[0], expected, atol=1e-6)
    assert torch.allclose(onnx_outputs(network, x)[0], expected, atol=1e-5)


@pytest.mark.untyped
def test_refuses():
    network = operators.LSTM(4, 6)
    with pytest.raises(ValueError, match="got a PackedSequence"):
        network(pack_sequence([torch.zeros(2, 4)]))
    with pytest.raises(ValueError, match=r"input must be \(time, batch, 4\) or \(time, 4\), got shape \(2, 3\)"):
        network(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"the state must be 2 tensor\(s\) of shape \(1, 3, 6\)"):
        network(torch.zeros(2, 3, 4), torch.zeros(1, 3, 6))
    with pytest.raises(ValueError, match="proj_size must be 0, got 2"):
        operators.LSTM(4, 6, proj_size=2)
