"""One step of a recurrent network from its two decoupled products, shared by the cells and the sequences.

A step takes what the input gives to the gates, what the hidden state gives, and the state; it returns the new state.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...angular import AngularLike, Cosine, as_angular
from ..magnitudes import MagnitudeLike, Sphere, as_magnitude
from ..operator_layer import apply_operator, bind_to_weight

Step: TypeAlias = Callable[[Tensor, Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]


class Products(nn.Module):
    """h and g for the two weights of a cell, the input's and the hidden state's; what they learn is each one's own."""

    def __init__(
        self, weight_ih: Tensor, weight_hh: Tensor, magnitude: MagnitudeLike | None, angular: AngularLike | None
    ):
        super().__init__()
        h = Sphere() if magnitude is None else as_magnitude(magnitude)
        g = Cosine() if angular is None else as_angular(angular)
        self.magnitude_ih, self.angular_ih = bind_to_weight(h, g, weight_ih)
        self.magnitude_hh, self.angular_hh = bind_to_weight(h, g, weight_hh)

    def ih(
        self, x: Float[Tensor, "*batch inputs"], weight: Tensor, bias: Tensor | None
    ) -> Float[Tensor, "*batch gates"]:
        """Return the input's part of the gates."""
        return apply_operator(x, weight, bias, self.magnitude_ih, self.angular_ih)

    def hh(
        self, h: Float[Tensor, "*batch hidden"], weight: Tensor, bias: Tensor | None
    ) -> Float[Tensor, "*batch gates"]:
        """Return the hidden state's part of the gates; at the zero state it is the bias."""
        return apply_operator(h, weight, bias, self.magnitude_hh, self.angular_hh)


def rnn_step(nonlinearity: str) -> Step:
    """Return h' = φ(f(W, x) + f(U, h)), with φ the tanh or the relu."""
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
    return _tanh_step if nonlinearity == "tanh" else _relu_step


def gru_step(x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Reset, update and new gates in torch's order."""
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    new = torch.tanh(xn + reset * hn)
    return (new + update * (state[0] - new),)


def lstm_step(x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the next states from input, forget, cell and output gates in torch's order."""
    i, f, g, o = (x + h).chunk(4, -1)
    cell = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def check_state(state: Any, states: int, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Check that the state is a tuple of ``count`` tensors of this shape, and return it."""
    state = (state,) if isinstance(state, Tensor) else tuple(state)
    given = [tuple(s.shape) for s in state]
    if given != [shape] * states:
        raise ValueError(f"the state must be {states} tensor(s) of shape {shape}, got {given}")
    return state


def _tanh_step(x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (torch.tanh(x + h),)


def _relu_step(x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (torch.relu(x + h),)
