"""The options that every head takes, written once."""

import inspect
from typing import Any, Literal, TypedDict, get_args, get_origin

import torch
from typing_extensions import Unpack

from .annealing import Annealing
from .engine import Chunk
from .margins.margin import Strength
from .sampling.sample import Sample


class HeadOptions(TypedDict, total=False):
    """What any head takes besides its own arguments; :class:`~hypersphere.objectives.MarginSoftmax` explains each."""

    annealing: Annealing | None
    sample: float | Strength | Sample | None
    parallel: bool
    sub_centers: int
    gradient: Literal["exact", "detached"]
    reduction: Literal["mean", "sum", "none"]
    ignore_index: int
    label_smoothing: float
    chunk: Chunk
    matmul_dtype: torch.dtype | None
    device: torch.device | str | None
    dtype: torch.dtype | None


SPELLINGS = {"s": "scale", "margin": "m", "r": "scale", "k": "sub_centers", "out_features": "num_classes"}


def accepted_arguments(cls: type) -> list[str] | None:
    """The keyword arguments of a head's constructor; None where it takes any, as a class of one's own may.

    >>> accepted_arguments(hs.CosFace)[:4]
    ['in_features', 'num_classes', 'm', 'scale']
    """
    names = []
    constructor = cls.__init__  # type: ignore[misc]
    for name, parameter in list(inspect.signature(constructor).parameters.items())[1:]:
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            names.append(name)
        elif get_origin(parameter.annotation) is Unpack:
            names += get_args(parameter.annotation)[0].__annotations__
        else:
            return None
    return names


def check_keywords(cls: type, given: dict[str, Any]) -> None:
    """Refuse, with a TypeError, a keyword that the constructor does not take, and say which ones it does."""
    accepted = accepted_arguments(cls)
    for name in given:
        if accepted is not None and name not in accepted:
            other = SPELLINGS.get(name)
            hint = f" (it is called {other} here)" if other in accepted else ""
            raise TypeError(f"{cls.__name__} takes no argument {name!r}{hint}; it takes {', '.join(accepted)}")
