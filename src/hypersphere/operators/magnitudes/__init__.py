"""Magnitudes h(‖w‖, ‖x‖) of the operators (eq. 4.4–4.10 and 4.3.5). Each can be combined with any angle."""

from .ball import Ball
from .linear_magnitude import InnerProduct, Linear
from .log_magnitude import Log
from .magnitude import CustomMagnitude, Magnitude, MagnitudeLike, as_magnitude
from .mix import Mix
from .radius import Radius
from .seg import Seg
from .sphere import Sphere
from .tanh import Tanh

__all__ = [
    "Ball",
    "CustomMagnitude",
    "InnerProduct",
    "Linear",
    "Log",
    "Magnitude",
    "MagnitudeLike",
    "Mix",
    "Radius",
    "Seg",
    "Sphere",
    "Tanh",
    "as_magnitude",
]
