"""Maps from a free square matrix to R: each a pure function on ``(…, n, n)`` and the method that trains it."""

from .methods import METHODS, as_map
from .orthogonal_map import Map, MapLike

__all__ = ["METHODS", "Map", "MapLike", "as_map"]
