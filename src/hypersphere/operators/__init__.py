"""Part II. Operators f(w, x) = h(‖w‖, ‖x‖)·g(θ): any magnitude with any angle in any layer."""

from . import magnitudes
from .conv import Conv1d, Conv2d, Conv3d
from .core import Operator, decoupled
from .linear import Linear
from .presets import BallConv2d, LinearConv2d, LogConv2d, MixConv2d, SegConv2d, SphereConv2d, SphereLinear, TanhConv2d
