"""Recipes: functions of a size that return a config, with the tables of Liu (2020) that they reproduce."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from ..config import Call, call, suggest
from ..data import CropFlip, Digits, PictureFolder
from ..models import cifar_resnet, resnet32
from ..training import Config, StepRate, replace

Size = Literal["smoke", "laptop", "paper"]
SIZES: tuple[Size, ...] = get_args(Size)

CROP_FLIP = call(CropFlip, pad=4)
CROP_FLIP_BOTH = call(CropFlip, pad=4, vertical=True)
MIRROR = call(CropFlip, pad=0)
CENTERED = "faces"  # (x − 127.5)/128, the first operation of the authors' networks for CIFAR (chapters 3 to 7)


@dataclass(frozen=True)
class Recipe:
    """An experiment of Liu (2020) in three sizes.

    ``smoke`` checks in seconds that everything works, on data inside the package. ``laptop`` takes minutes on two cores with
    real data. ``paper`` is the setting of the dissertation.

    Args:
        name: The name that commands accept.
        tables: The tables and figures of Liu (2020) that it reproduces.
        data: The datasets.
        summary: One sentence.
        function: Returns the config of a size.

    >>> from hypersphere import recipes
    >>> chosen = recipes.get("sphereface-lfw")
    >>> chosen.tables, chosen.config("paper").head.name, chosen.config("smoke").steps
    ('2.8, 2.9', 'SphereFace', 4)
    """

    name: str
    tables: str
    data: str
    summary: str
    function: Callable[[Size], Config]

    def config(self, size: Size = "laptop") -> Config:
        """Return the config of a size.

        Raises:
            ValueError: If the size is unknown.
        """
        if size not in SIZES:
            raise ValueError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
        return replace(self.function(size), name=self.name)


RECIPES: dict[str, Recipe] = {}


def make_config(**parts: Any) -> Config:
    """Return a config from arguments that recipes collect in dictionaries, whose values have different types."""
    return Config(**parts)


def make_smoke(**parts: Any) -> Config:
    """Return a config of four steps with two evaluations and checkpoints, on the digits unless ``data`` is set."""
    few = {"steps": 4, "evaluate_every": 2, "log_every": 2, "checkpoint_every": 2, "batch_size": 64}
    return make_config(**{**few, "data": call(Digits), **parts})


def shrink_depth(model: Call) -> Call:
    """Return a ResNet-8 instead of a ResNet-32 of the same table, for smoke runs. Other networks are not changed."""
    return Call(cifar_resnet, {"depth": 8, **model.arguments}) if model.target is resnet32 else model


def make_sgd(lr: float, weight_decay: float = 5e-4, **options: Any) -> Call:
    """Return SGD with momentum 0.9."""
    return call(torch.optim.SGD, lr=lr, momentum=0.9, weight_decay=weight_decay, **options)


def make_adam(lr: float, weight_decay: float = 0.0, **options: Any) -> Call:
    """Return Adam, by default without weight decay."""
    return call(torch.optim.Adam, lr=lr, weight_decay=weight_decay, **options)


def decay_at(*milestones: int, gamma: float = 0.1) -> Call:
    """Return a schedule that multiplies the learning rate by ``gamma`` at each milestone, counted in steps."""
    return call(StepRate, milestones=milestones, gamma=gamma)


# ImageNet (B.2): resized to 256×256, a random crop of 224×224 and a mirror image in training, the center crop in testing.
IMAGENET = call(PictureFolder, folder="imagenet", size=256, center=224)
IMAGENET_CROP = call(CropFlip, pad=0, size=224)


def make_imagenet(
    steps: int, batch_size: int, milestones: tuple[int, ...], weight_decay: float, **parts: Any
) -> Config:
    """Return the config of all ImageNet experiments: SGD with momentum 0.9 and learning rate 0.1, and the preprocessing of B.2.

    The pictures are in a folder ``imagenet`` with ``train`` and ``val``, in the current folder or in a data root.
    """
    common: dict[str, Any] = {"data": IMAGENET, "normalize": CENTERED, "augment": IMAGENET_CROP}
    common |= {
        "batch_size": batch_size,
        "optimizer": make_sgd(0.1, weight_decay),
        "schedule": decay_at(*milestones),
    }
    return make_config(steps=steps, evaluate_every=steps // 50, checkpoint_every=steps // 100, **{**common, **parts})


def make_saturated_schedule(steps: int = 42500) -> Call:
    """Return the milestones of D.1 in proportion to the steps, for "when the performance is saturated" in Liu (2020)."""
    return decay_at(*(steps * part // 425 for part in (200, 300, 375)))


def recipe(name: str, *, tables: str, data: str) -> Callable[[Callable[[Size], Config]], Callable[[Size], Config]]:
    """Register a function as a recipe. The first line of its docstring is the summary.

    Args:
        name: The name of the recipe.
        tables: The tables and figures of Liu (2020) that it reproduces.
        data: The datasets.

    >>> from hypersphere import recipes
    >>> @recipes.recipe("my-digits", tables="none", data="Digits")
    ... def my_digits(size: recipes.Size) -> Config:
    ...     "A short run on the digits."
    ...     return Config(steps=10 if size == "smoke" else 1000)
    >>> recipes.get("my-digits").summary, recipes.RECIPES.pop("my-digits").config("smoke").steps
    ('A short run on the digits.', 10)
    """

    def register(function: Callable[[Size], Config]) -> Callable[[Size], Config]:
        summary = (function.__doc__ or "").strip().splitlines()[0]
        RECIPES[name] = Recipe(name, tables, data, summary, function)
        return function

    return register


def get(name: str) -> Recipe:
    """Return a recipe by name.

    Raises:
        ValueError: If there is no such recipe. The message lists all names and proposes the nearest one.

    >>> from hypersphere import recipes
    >>> recipes.get("mhe-cifar10").tables
    '5.1'
    >>> recipes.get("mhe-cifar")
    Traceback (most recent call last):
    ...
    ValueError: there is no recipe 'mhe-cifar'; there are ...; did you mean mhe-cifar10?
    """
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}; there are {', '.join(sorted(RECIPES))}{suggest(name, RECIPES)}")
    return RECIPES[name]
