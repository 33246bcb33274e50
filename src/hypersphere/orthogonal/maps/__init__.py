"""Maps from an unconstrained square matrix to R, each as a pure function on ``(…, n, n)`` and as a training method."""

from .methods import METHODS, as_map
from .orthogonal_map import Map, MapLike

__all__ = ["METHODS", "Map", "MapLike", "as_map"]
