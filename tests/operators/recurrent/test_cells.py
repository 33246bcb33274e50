import copy
import pickle

import pytest
import torch
from torch import nn

from hypersphere import angular, operators
from hypersphere.operators import magnitudes

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


def test_relu():
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
def test_what_learns_is_each_weights_own(kind):
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
def test_refuses():
    with pytest.raises(ValueError, match="nonlinearity must be"):
        operators.RNNCell(4, 6, nonlinearity="gelu")
    with pytest.raises(ValueError, match=r"the state must be 1 tensor\(s\) of shape \(3, 6\), got \[\(2, 6\)\]"):
        operators.GRUCell(4, 6)(torch.zeros(3, 4), torch.zeros(2, 6))
