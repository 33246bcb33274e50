"""Recurrent operators (3.2.4, poster): the inner products of a recurrent cell replaced by h·g(θ)."""

from .cells import GRUCell, LSTMCell, RNNCell
from .sequences import GRU, LSTM, RNN

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]
