"""Deep representation learning on the hypersphere: objectives, operators, energy and orthogonal training for PyTorch."""

from . import angular, geometry, layers

__version__ = "0.1.0"

__all__ = ["__version__", "angular", "geometry", "layers"]
