"""What a recipe is: a function of a size that returns a config, with the tables it belongs to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ...training.config import Config, Data, replace

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
DIGITS = Data("Digits", batch_size=64)


def smoke(**parts: Any) -> Config:
    """A run of four steps, each kind of event twice, on the digits unless ``data`` says otherwise."""
    return Config(**{"steps": 4, "evaluate_every": 2, "log_every": 2, "checkpoint_every": 2, "data": DIGITS, **parts})


def saturated(steps: int = 42500) -> dict[str, Any]:
    """Milestones where the text says "when the performance is saturated": those of D.1, in the same proportion to the steps."""
    return {"milestones": tuple(steps * part // 425 for part in (200, 300, 375))}


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
