"""The options that all heads share, and how they appear in signatures and docstrings."""

import inspect
import re
from typing import Any, Literal, TypedDict, TypeVar, get_args, get_origin

import torch
from typing_extensions import Unpack

from .annealing import Annealing
from .engine import Chunk
from .margins.margin import Strength
from .sampling.sample import Sample

Head = TypeVar("Head", bound=type)


class HeadOptions(TypedDict, total=False):
    """Keyword arguments of every head; :class:`~hypersphere.objectives.MarginSoftmax` explains them."""

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


# Names of arguments in other libraries, and their names here.
SPELLINGS = {"s": "scale", "margin": "m", "r": "scale", "k": "sub_centers", "out_features": "num_classes"}


def write_out_options(cls: Head) -> Head:
    """Replace ``**options`` in the signature of a head by the options themselves, and document every argument.

    A head declares ``**options: Unpack[HeadOptions]`` and documents only its own arguments. The other arguments are copied from
    its base class, so that ``help(hs.ArcFace)`` and editors show a complete list. A default that differs from that of the base
    class is read from the class attribute ``option_defaults``.

    Args:
        cls: The class of the head; its ``__signature__`` and ``__doc__`` are set.

    Returns:
        The class itself.

    >>> list(inspect.signature(hs.CosFace).parameters)[-3:]
    ['matmul_dtype', 'device', 'dtype']
    """
    parent = cls.__mro__[1]
    inherited = inspect.signature(parent).parameters
    complete: list[inspect.Parameter] = []
    for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]:  # type: ignore[misc]
        if get_origin(parameter.annotation) is not Unpack:
            complete.append(parameter)
            continue
        defaults = getattr(cls, "option_defaults", {})
        for name, kind in get_args(parameter.annotation)[0].__annotations__.items():
            default = defaults.get(name, inherited[name].default)
            complete.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
    cls.__signature__ = inspect.Signature(complete)  # type: ignore[attr-defined]
    if cls.__doc__ is not None:  # None under python -OO
        cls.__doc__ = _complete_arguments(cls.__doc__, parent.__doc__ or "", [parameter.name for parameter in complete])
    return cls


def list_arguments(cls: type) -> list[str] | None:
    """Return the arguments of a head's constructor.

    Args:
        cls: The class of the head.

    Returns:
        Their names, or None if the constructor takes any keyword.

    >>> list_arguments(hs.CosFace)[:4]
    ['in_features', 'num_classes', 'm', 'scale']
    """
    parameters = inspect.signature(cls).parameters.values()
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    return None if takes_any else [parameter.name for parameter in parameters]


def check_keywords(cls: type, keywords: dict[str, Any]) -> None:
    """Check that the constructor of a head takes these keywords.

    Args:
        cls: The class of the head.
        keywords: The keyword arguments of a call.

    Raises:
        TypeError: If one is unknown. The message lists the arguments, and the name of the argument if other libraries use
            this one.
    """
    accepted = list_arguments(cls)
    for name in keywords:
        if accepted is not None and name not in accepted:
            other = SPELLINGS.get(name)
            hint = f" (it is called {other} here)" if other in accepted else ""
            raise TypeError(f"{cls.__name__} takes no argument {name!r}{hint}; it takes {', '.join(accepted)}")


def _complete_arguments(text: str, parent: str, names: list[str]) -> str:
    """Return the docstring with an ``Args`` entry for each of ``names``; missing entries are copied from ``parent``."""
    text = inspect.cleandoc(text)
    entries = _read_entries(inspect.cleandoc(parent)) | _read_entries(text)
    section = "Args:\n" + "".join(f"    {name}: {entries[name]}\n" for name in names if name in entries)
    if "\nArgs:\n" in text:
        before, _, after = text.partition("\nArgs:\n")
        return f"{before}\n{section}\n{after.partition(chr(10) * 2)[2]}"
    before, mark, after = text.partition("\n>>> ")
    return f"{before}\n{section}{mark}{after}" if mark else f"{before}\n\n{section}"


def _read_entries(text: str) -> dict[str, str]:
    """Return the entries of the ``Args`` section of a docstring by the name of the argument."""
    section = text.partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^ {4}([\w, ]+): ((?:.*)(?:\n {8,}.*)*)", section, re.MULTILINE)
    return {name.strip(): entry for names, entry in entries for name in names.split(",")}
