"""Magnitudes h(‖w‖, ‖x‖) of the operators (eq. 4.4–4.10 and 4.3.5); any of them goes with any angle."""

from .ball import Ball
from .base import Custom, Magnitude, MagnitudeLike, as_magnitude
from .linear import InnerProduct, Linear
from .log import Log
from .mix import Mix
from .radius import Radius
from .seg import Seg
from .sphere import Sphere
from .tanh import Tanh

__all__ = [
    "Ball",
    "Custom",
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
