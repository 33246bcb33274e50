"""Recurrent networks over whole sequences: layers and directions of operator cells, with torch's parameters."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ...angular import AngularLike
from ..magnitudes import Magnitude, MagnitudeLike
from .steps import Products, Step, check_state, gru_step, lstm_step, rnn_step


class _Sequence(nn.RNNBase):
    """The input's products of all time steps at once, then one step after the other."""

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
        **more: Any,
    ):
        more |= {"num_layers": num_layers, "bias": bias, "batch_first": batch_first, "dropout": dropout}
        # The next class is torch's RNN, GRU or LSTM, whose first arguments are not RNNBase's.
        more |= {"bidirectional": bidirectional, "device": device, "dtype": dtype}
        super().__init__(input_size, hidden_size, **more)  # type: ignore[arg-type]
        if self.proj_size:
            raise ValueError(f"proj_size must be 0, got {self.proj_size}")
        self.products = nn.ModuleDict(
            {name: Products(*self._weights(name)[:2], magnitude, angular) for layer in self._layers() for name in layer}
        )

    def decoupled_weights(self) -> Iterator[tuple[str, Tensor, Magnitude]]:
        """Return the two weights of every layer and direction, by attribute name, each with its magnitude."""
        for name, products in self.products.items():
            for part in ("ih", "hh"):
                yield (
                    f"weight_{part}_{name}",
                    getattr(self, f"weight_{part}_{name}"),
                    getattr(products, f"magnitude_{part}"),
                )

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
        """Return the outputs of all time steps and the last state, shaped as in torch; without a state, start from zeros."""
        if isinstance(input, PackedSequence):
            raise ValueError("input must be a tensor, got a PackedSequence: pad it, and mask the outputs")
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ValueError(
                f"input must be (time, batch, {self.input_size}) or (time, {self.input_size}), "
                f"got shape {tuple(input.shape)}"
            )
        batched = input.ndim == 3
        x = input.unsqueeze(1) if not batched else input.transpose(0, 1) if self.batch_first else input
        state = self._start(x, hx, batched)
        last: list[tuple[Tensor, ...]] = []
        for depth, layer in enumerate(self._layers()):
            if depth and self.dropout:
                x = nn.functional.dropout(x, self.dropout, self.training)
            runs = [self._run(name, x, tuple(s[len(last) + i] for s in state)) for i, name in enumerate(layer)]
            x = torch.cat([out for out, _ in runs], -1)
            last += [final for _, final in runs]
        x = x.squeeze(1) if not batched else x.transpose(0, 1) if self.batch_first else x
        end = [torch.stack(parts) for parts in zip(*last, strict=True)]
        end = end if batched else [s.squeeze(1) for s in end]
        return x, end[0] if self.states == 1 else tuple(end)

    def _run(self, name: str, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        weight_ih, weight_hh, bias_ih, bias_hh = self._weights(name)
        products: Any = self.products[name]
        gates = products.ih(x, weight_ih, bias_ih).unbind(0)
        backwards = name.endswith("reverse")
        outputs = []
        for gate in reversed(gates) if backwards else gates:
            state = self.step(gate, products.hh(state[0], weight_hh, bias_hh), state)
            outputs.append(state[0])
        return torch.stack(outputs[::-1] if backwards else outputs), state

    def _layers(self) -> list[list[str]]:
        """Return torch's names of the parameters of each layer and direction."""
        endings = ["", "_reverse"] if self.bidirectional else [""]
        return [[f"l{layer}{ending}" for ending in endings] for layer in range(self.num_layers)]

    def _weights(self, name: str) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        weights = getattr(self, f"weight_ih_{name}"), getattr(self, f"weight_hh_{name}")
        if not self.bias:
            return *weights, None, None
        return *weights, getattr(self, f"bias_ih_{name}"), getattr(self, f"bias_hh_{name}")

    def _start(self, x: Tensor, hx: Any, batched: bool) -> tuple[Tensor, ...]:
        runs, size = self.num_layers * (2 if self.bidirectional else 1), self.hidden_size
        if hx is None:
            return (x.new_zeros(runs, x.shape[1], size),) * self.states
        if batched:
            return check_state(hx, self.states, (runs, x.shape[1], size))
        return tuple(s.unsqueeze(1) for s in check_state(hx, self.states, (runs, size)))


class RNN(_Sequence, nn.RNN):  # type: ignore[misc]
    r"""``torch.nn.RNN`` of :class:`RNNCell`: same arguments (without ``proj_size`` and packed sequences) and state.

    >>> out, last = RNN(4, 8, num_layers=2, bidirectional=True)(torch.randn(5, 3, 4))
    >>> out.shape, last.shape
    (torch.Size([5, 3, 16]), torch.Size([4, 3, 8]))
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", **more: Any):
        super().__init__(input_size, hidden_size, num_layers, nonlinearity=nonlinearity, **more)
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
