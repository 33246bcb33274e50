"""Part II. Operators f(w, x) = h(‖w‖, ‖x‖)·g(θ): any magnitude with any angle in any layer."""

from . import magnitudes
from .attention import AttentionScale, CosineAttention, cosine_attention
from .conv import Conv1d, Conv2d, Conv3d
from .conversion import convert, restore
from .layer_presets import (
    BallConv2d,
    LinearConv2d,
    LogConv2d,
    MixConv2d,
    SegConv2d,
    SphereConv2d,
    SphereLinear,
    TanhConv2d,
)
from .linear import Linear
from .norm import SphereNorm
from .operator import Operator
from .operator_layer import OperatorLayer, apply_operator
from .optimization import project_weights, project_weights_every, weighted_gradients
from .recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "AttentionScale",
    "BallConv2d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "CosineAttention",
    "GRUCell",
    "LSTMCell",
    "Linear",
    "LinearConv2d",
    "LogConv2d",
    "MixConv2d",
    "Operator",
    "OperatorLayer",
    "RNNCell",
    "SegConv2d",
    "SphereConv2d",
    "SphereLinear",
    "SphereNorm",
    "TanhConv2d",
    "apply_operator",
    "convert",
    "cosine_attention",
    "magnitudes",
    "project_weights",
    "project_weights_every",
    "restore",
    "weighted_gradients",
]
