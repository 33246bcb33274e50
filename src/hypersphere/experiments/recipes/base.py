"""What a recipe is: a function of a size that returns a config, with the tables it belongs to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from ..config import Config, replace

Size = Literal["smoke", "laptop", "paper"]
SIZES: tuple[Size, ...] = get_args(Size)


@dataclass(frozen=True)
class Recipe:
    """An experiment family of the text: ``config(size)`` is its setting.

    ``smoke`` runs in seconds on data inside the package, to see that everything works; ``laptop`` in minutes on two cores, on real data;
    ``paper`` is the text's own setting.
    """

    name: str
    tables: str
    data: str
    summary: str
    function: Callable[[Size], Config]

    def config(self, size: Size = "laptop") -> Config:
        """The setting at a size."""
        if size not in SIZES:
            raise ValueError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
        return replace(self.function(size), name=self.name)


RECIPES: dict[str, Recipe] = {}


def recipe(name: str, *, tables: str, data: str) -> Callable[[Callable[[Size], Config]], Callable[[Size], Config]]:
    """Make a function a recipe under a name; the first line of its docstring is the summary."""

    def register(function: Callable[[Size], Config]) -> Callable[[Size], Config]:
        summary = (function.__doc__ or "").strip().splitlines()[0]
        RECIPES[name] = Recipe(name, tables, data, summary, function)
        return function

    return register


def get(name: str) -> Recipe:
    """The recipe of a name; an unknown one is an error that lists those there are."""
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}; there are {', '.join(sorted(RECIPES))}")
    return RECIPES[name]
