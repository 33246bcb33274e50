"""Ways to a matrix R: one per file, each a pure function on ``(…, n, n)`` and the method that trains it."""

from .base import Map, MapLike
from .methods import METHODS, as_map

__all__ = ["METHODS", "Map", "MapLike", "as_map"]
