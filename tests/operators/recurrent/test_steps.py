import pytest
import torch
from torch import nn

from hypersphere.operators.magnitudes import InnerProduct
from hypersphere.operators.recurrent.steps import Products, check_state, gru_step, lstm_step, rnn_step


@pytest.mark.parametrize(
    ("kind", "step", "states"), [("RNNCell", rnn_step("tanh"), 1), ("GRUCell", gru_step, 1), ("LSTMCell", lstm_step, 2)]
)
def test_a_step_of_plain_products_is_torchs(kind, step, states):
    cell = getattr(nn, kind)(4, 6, dtype=torch.float64)
    x, state = (
        torch.randn(3, 4, dtype=torch.float64),
        tuple(torch.randn(3, 6, dtype=torch.float64) for _ in range(states)),
    )
    products = Products(cell.weight_ih, cell.weight_hh, InnerProduct(), None)
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
