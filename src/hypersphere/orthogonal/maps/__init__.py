"""Ways to a matrix R: one per file, each a pure function on ``(…, n, n)`` and the method that trains it."""

from .base import Free, Map, MapLike
from .cayley import Cayley, cayley
from .exponential import Exponential, exponential
from .gram_schmidt import GramSchmidt, gram_schmidt
from .householder import Householder, householder
from .lowdin import Lowdin, lowdin
from .methods import METHODS, as_map
from .newton_schulz import newton_schulz
from .structured import Banded, SymmetricPositive, Triangular

__all__ = [
    "METHODS",
    "Banded",
    "Cayley",
    "Exponential",
    "Free",
    "GramSchmidt",
    "Householder",
    "Lowdin",
    "Map",
    "MapLike",
    "SymmetricPositive",
    "Triangular",
    "as_map",
    "cayley",
    "exponential",
    "gram_schmidt",
    "householder",
    "lowdin",
    "newton_schulz",
]
