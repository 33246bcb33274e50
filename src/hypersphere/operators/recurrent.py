"""Recurrent cells and networks whose inner products are replaced by operators h·g(θ) (3.2.4)."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..angular import AngularLike
from .magnitudes import Magnitude, MagnitudeLike
from .operator_layer import apply_operator, bind_to_weight

Step: TypeAlias = Callable[[Tensor, Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]
"""Computes the new state from the products of the input, the products of the hidden state, and the old state."""


def rnn_step(nonlinearity: str) -> Step:
    """Return the step h' = φ(f(W, x) + f(U, h)), where φ is tanh or relu."""
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
    return _step_tanh if nonlinearity == "tanh" else _step_relu


def gru_step(x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the next state; the gates are reset, update and new, in this order."""
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    new = torch.tanh(xn + reset * hn)
    return (new + update * (state[0] - new),)


def lstm_step(x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the next states; the gates are input, forget, cell and output, in this order."""
    i, f, g, o = (x + h).chunk(4, -1)
    cell = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def check_state(state: Any, states: int, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Return the state as a tuple; raise a ValueError unless it has ``states`` tensors of this shape."""
    state = (state,) if isinstance(state, Tensor) else tuple(state)
    shapes = [tuple(s.shape) for s in state]
    if shapes != [shape] * states:
        raise ValueError(f"the state must be {states} tensor(s) of shape {shape}, got {shapes}")
    return state


def _step_tanh(x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (torch.tanh(x + h),)


def _step_relu(x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (torch.relu(x + h),)


class Products(nn.Module):
    """The operators of the two weights of a cell, for the input and for the hidden state, with separate h and g."""

    def __init__(
        self, weight_ih: Tensor, weight_hh: Tensor, magnitude: MagnitudeLike | None, angular: AngularLike | None
    ):
        super().__init__()
        self.magnitude_ih, self.angular_ih = bind_to_weight(magnitude, angular, weight_ih)
        self.magnitude_hh, self.angular_hh = bind_to_weight(magnitude, angular, weight_hh)

    def ih(
        self, x: Float[Tensor, "*batch inputs"], weight: Tensor, bias: Tensor | None
    ) -> Float[Tensor, "*batch gates"]:
        """Return the input's part of the gates."""
        return apply_operator(x, weight, bias, self.magnitude_ih, self.angular_ih)

    def hh(
        self, h: Float[Tensor, "*batch hidden"], weight: Tensor, bias: Tensor | None
    ) -> Float[Tensor, "*batch gates"]:
        """Return the hidden state's part of the gates, which is the bias for a zero state."""
        return apply_operator(h, weight, bias, self.magnitude_hh, self.angular_hh)


class _Cell(nn.RNNCellBase):
    step: Step
    states = 1

    def decouple(self, magnitude: MagnitudeLike | None, angular: AngularLike | None) -> None:
        """Set h and g, by default Sphere and Cosine."""
        self.products = Products(self.weight_ih, self.weight_hh, magnitude, angular)

    def decoupled_weights(self) -> Iterator[tuple[str, Tensor, Magnitude]]:
        """Yield the two weights, each with its attribute name and its magnitude."""
        yield "weight_ih", self.weight_ih, self.products.magnitude_ih
        yield "weight_hh", self.weight_hh, self.products.magnitude_hh

    def advance(self, x: Tensor, state: Any) -> tuple[Tensor, ...]:
        """Return the next state; ``x`` is a row or a batch of rows."""
        shape = (*x.shape[:-1], self.hidden_size)
        state = (x.new_zeros(shape),) * self.states if state is None else check_state(state, self.states, shape)
        gates = self.products.ih(x, self.weight_ih, self.bias_ih)
        return self.step(gates, self.products.hh(state[0], self.weight_hh, self.bias_hh), state)

    def forward(
        self, input: Float[Tensor, "*batch inputs"], hx: Float[Tensor, "*batch hidden"] | None = None
    ) -> Tensor:
        """Return the next hidden state; without a state, start from zeros."""
        return self.advance(input, hx)[0]


class RNNCell(_Cell, nn.RNNCell):  # type: ignore[misc]
    r"""``torch.nn.RNNCell`` with h' = φ(f(W, x) + f(U, h)), where f is the operator; same arguments and ``state_dict``.

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


class _GatedCell(_Cell):
    """A cell with the constructor arguments of ``nn.GRUCell`` and ``nn.LSTMCell``, one of which is the next base class."""

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


class GRUCell(_GatedCell, nn.GRUCell):  # type: ignore[misc]
    """``torch.nn.GRUCell`` with operators instead of inner products; the rows of each gate are neurons. See :class:`RNNCell`.

    >>> GRUCell(5, 4)(torch.randn(2, 5)).shape
    torch.Size([2, 4])
    """

    step = staticmethod(gru_step)


class LSTMCell(_GatedCell, nn.LSTMCell):  # type: ignore[misc]
    """``torch.nn.LSTMCell`` with operators instead of inner products; the rows of each gate are neurons. See :class:`RNNCell`.

    >>> [state.shape for state in LSTMCell(5, 4)(torch.randn(2, 5))]
    [torch.Size([2, 4]), torch.Size([2, 4])]
    """

    step = staticmethod(lstm_step)
    states = 2

    def forward(  # type: ignore[override]
        self, input: Float[Tensor, "*batch inputs"], hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the next hidden and cell states; without states, start from zeros."""
        hidden, cell = self.advance(input, hx)
        return hidden, cell


class _Sequence(nn.RNNBase):
    """A network that computes the products of all inputs at once, and then one time step after the other."""

    step: Step
    states = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        magnitude: MagnitudeLike | None = None,
        angular: AngularLike | None = None,
        **options: Any,
    ):
        options |= {"num_layers": num_layers, "bias": bias, "batch_first": batch_first, "dropout": dropout}
        options |= {"bidirectional": bidirectional, "device": device, "dtype": dtype}
        # The next base class is nn.RNN, nn.GRU or nn.LSTM, whose first argument is not that of nn.RNNBase.
        super().__init__(input_size, hidden_size, **options)  # type: ignore[arg-type]
        if self.proj_size:
            raise ValueError(f"proj_size must be 0, got {self.proj_size}")
        self.products = nn.ModuleDict(
            {
                name: Products(*self._get_weights(name)[:2], magnitude, angular)
                for layer in self._name_layers()
                for name in layer
            }
        )

    def decoupled_weights(self) -> Iterator[tuple[str, Tensor, Magnitude]]:
        """Yield the two weights of every layer and direction, each with its attribute name and its magnitude."""
        for name, products in self.products.items():
            for part in ("ih", "hh"):
                yield (
                    f"weight_{part}_{name}",
                    getattr(self, f"weight_{part}_{name}"),
                    getattr(products, f"magnitude_{part}"),
                )

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
        """Return the outputs of all time steps and the last state as torch does; without a state, start from zeros."""
        if isinstance(input, PackedSequence):
            raise ValueError("input must be a tensor, got a PackedSequence: pad it, and mask the outputs")
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ValueError(
                f"input must be (time, batch, {self.input_size}) or (time, {self.input_size}), "
                f"got shape {tuple(input.shape)}"
            )
        batched = input.ndim == 3
        x = input.unsqueeze(1) if not batched else input.transpose(0, 1) if self.batch_first else input
        state = self._get_initial_state(x, hx, batched)
        last: list[tuple[Tensor, ...]] = []
        for depth, layer in enumerate(self._name_layers()):
            if depth and self.dropout:
                x = nn.functional.dropout(x, self.dropout, self.training)
            runs = [self._run_layer(name, x, tuple(s[len(last) + i] for s in state)) for i, name in enumerate(layer)]
            x = torch.cat([outputs for outputs, _ in runs], -1)
            last += [final_state for _, final_state in runs]
        x = x.squeeze(1) if not batched else x.transpose(0, 1) if self.batch_first else x
        state = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
        state = state if batched else tuple(s.squeeze(1) for s in state)
        return x, state[0] if self.states == 1 else state

    def _run_layer(self, name: str, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        weight_ih, weight_hh, bias_ih, bias_hh = self._get_weights(name)
        products: Any = self.products[name]
        gates = products.ih(x, weight_ih, bias_ih).unbind(0)
        backwards = name.endswith("reverse")
        outputs = []
        for gate in reversed(gates) if backwards else gates:
            state = self.step(gate, products.hh(state[0], weight_hh, bias_hh), state)
            outputs.append(state[0])
        return torch.stack(outputs[::-1] if backwards else outputs), state

    def _name_layers(self) -> list[list[str]]:
        """Return torch's names of the parameters of each layer and direction."""
        endings = ["", "_reverse"] if self.bidirectional else [""]
        return [[f"l{layer}{ending}" for ending in endings] for layer in range(self.num_layers)]

    def _get_weights(self, name: str) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        weights = getattr(self, f"weight_ih_{name}"), getattr(self, f"weight_hh_{name}")
        if not self.bias:
            return *weights, None, None
        return *weights, getattr(self, f"bias_ih_{name}"), getattr(self, f"bias_hh_{name}")

    def _get_initial_state(self, x: Tensor, hx: Any, batched: bool) -> tuple[Tensor, ...]:
        count, size = self.num_layers * (2 if self.bidirectional else 1), self.hidden_size
        if hx is None:
            return (x.new_zeros(count, x.shape[1], size),) * self.states
        if batched:
            return check_state(hx, self.states, (count, x.shape[1], size))
        return tuple(s.unsqueeze(1) for s in check_state(hx, self.states, (count, size)))


class RNN(_Sequence, nn.RNN):  # type: ignore[misc]
    r"""``torch.nn.RNN`` of :class:`RNNCell`, with the same arguments (except ``proj_size`` and packed sequences) and state.

    >>> out, last = RNN(4, 8, num_layers=2, bidirectional=True)(torch.randn(5, 3, 4))
    >>> out.shape, last.shape
    (torch.Size([5, 3, 16]), torch.Size([4, 3, 8]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", **options: Any
    ):
        super().__init__(input_size, hidden_size, num_layers, nonlinearity=nonlinearity, **options)
        self.step = rnn_step(nonlinearity)


class GRU(_Sequence, nn.GRU):  # type: ignore[misc]
    """``torch.nn.GRU`` of :class:`GRUCell`; see :class:`RNN`.

    >>> GRU(5, 4)(torch.randn(7, 2, 5))[0].shape
    torch.Size([7, 2, 4])
    """

    step = staticmethod(gru_step)


class LSTM(_Sequence, nn.LSTM):  # type: ignore[misc]
    """``torch.nn.LSTM`` of :class:`LSTMCell`; see :class:`RNN`.

    >>> LSTM(5, 4)(torch.randn(7, 2, 5))[0].shape
    torch.Size([7, 2, 4])
    """

    step = staticmethod(lstm_step)
    states = 2
