"""The training methods by name, and the conversion of other maps."""

import copy
import functools
from collections.abc import Callable

from .canonical import Canonical
from .cayley import Cayley
from .exponential import Exponential
from .givens import Givens
from .gram_schmidt import GramSchmidt
from .householder import Householder
from .lowdin import Lowdin
from .orthogonal_map import CustomMap, Free, Map, MapLike

METHODS: dict[str, Callable[[], Map]] = {
    "cayley": Cayley,
    "gram_schmidt": GramSchmidt,
    "householder": Householder,
    "lowdin": Lowdin,
    "canonical": Canonical,
    "exponential": Exponential,
    "givens": Givens,
    "ogd": functools.partial(Free, "ogd"),
    "regularized": functools.partial(Free, "regularized"),
    "unconstrained": functools.partial(Free, "unconstrained"),
}


def as_map(method: MapLike) -> Map:
    """Return a new :class:`Map` for a name, a function of this package, a map, a map class or another callable.

    >>> as_map("cayley"), as_map(torch.matrix_exp).start(torch.empty(2, 2))
    (Cayley(), tensor([[0., 0.],
            [0., 0.]]))
    """
    if isinstance(method, str) and method in METHODS:
        return METHODS[method]()
    if isinstance(method, type) and issubclass(method, Map):
        return method()
    if isinstance(method, type) or not callable(method):
        raise ValueError(
            f"method must be one of {', '.join(METHODS)}, or a map from a square matrix to R, got {method!r}"
        )
    if isinstance(method, Map):
        return copy.deepcopy(method)
    wrappers = (kind for kind in METHODS.values() if getattr(kind, "function", None) is method)
    return next(wrappers, functools.partial(CustomMap, copy.deepcopy(method)))()
