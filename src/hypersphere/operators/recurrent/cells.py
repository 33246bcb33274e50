"""Recurrent cells whose products with the input and with the hidden state are operators."""

from collections.abc import Iterator
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from ...angular import AngularLike
from ..magnitudes import Magnitude, MagnitudeLike
from .steps import Products, Step, check_state, gru_step, lstm_step, rnn_step


class _Cell(nn.RNNCellBase):
    step: Step
    states = 1

    def decouple(self, magnitude: MagnitudeLike | None, angular: AngularLike | None) -> None:
        """Take h and g, by default Sphere and Cosine."""
        self.products = Products(self.weight_ih, self.weight_hh, magnitude, angular)

    def decoupled_weights(self) -> Iterator[tuple[str, Tensor, Magnitude]]:
        """Return the two weights, by attribute name, each with its magnitude."""
        yield "weight_ih", self.weight_ih, self.products.magnitude_ih
        yield "weight_hh", self.weight_hh, self.products.magnitude_hh

    def advance(self, x: Tensor, state: Any) -> tuple[Tensor, ...]:
        """Return the next state; ``x`` is a row or a batch of rows."""
        shape = (*x.shape[:-1], self.hidden_size)
        state = (x.new_zeros(shape),) * self.states if state is None else check_state(state, self.states, shape)
        gates = self.products.ih(x, self.weight_ih, self.bias_ih)
        return self.step(gates, self.products.hh(state[0], self.weight_hh, self.bias_hh), state)


class RNNCell(_Cell, nn.RNNCell):
    r"""``torch.nn.RNNCell`` with h' = φ(f(W, x) + f(U, h)), f the operator; same arguments and ``state_dict``.

    >>> RNNCell(4, 8)(torch.randn(3, 4)).shape
    torch.Size([3, 8])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
        *,
        magnitude: MagnitudeLike | None = None,
        angular: AngularLike | None = None,
    ):
        nn.RNNCell.__init__(self, input_size, hidden_size, bias, nonlinearity, device, dtype)
        self.step = rnn_step(nonlinearity)
        self.decouple(magnitude, angular)

    def forward(
        self, input: Float[Tensor, "*batch inputs"], hx: Float[Tensor, "*batch hidden"] | None = None
    ) -> Tensor:
        """Return the next hidden state; without a state, start from zeros."""
        return self.advance(input, hx)[0]


class _Gated(_Cell):
    """The arguments torch gives both its gated cells; the next class is one of them."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        magnitude: MagnitudeLike | None = None,
        angular: AngularLike | None = None,
    ):
        super().__init__(input_size, hidden_size, bias, device, dtype)  # type: ignore[call-arg, arg-type]
        self.decouple(magnitude, angular)


class GRUCell(_Gated, nn.GRUCell):
    """``torch.nn.GRUCell`` with operators for its products; each gate's rows are neurons. See :class:`RNNCell`.

    >>> GRUCell(5, 4)(torch.randn(2, 5)).shape
    torch.Size([2, 4])
    """

    step = staticmethod(gru_step)

    def forward(
        self, input: Float[Tensor, "*batch inputs"], hx: Float[Tensor, "*batch hidden"] | None = None
    ) -> Tensor:
        """Return the next hidden state; without a state, start from zeros."""
        return self.advance(input, hx)[0]


class LSTMCell(_Gated, nn.LSTMCell):
    """``torch.nn.LSTMCell`` with operators for its products; each gate's rows are neurons. See :class:`RNNCell`.

    >>> [state.shape for state in LSTMCell(5, 4)(torch.randn(2, 5))]
    [torch.Size([2, 4]), torch.Size([2, 4])]
    """

    step = staticmethod(lstm_step)
    states = 2

    def forward(
        self, input: Float[Tensor, "*batch inputs"], hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the next hidden and cell states; without states, start from zeros."""
        hidden, cell = self.advance(input, hx)
        return hidden, cell
