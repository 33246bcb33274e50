"""Tuning: the learning rate and the penalty weight of each arm are chosen on validation samples from the training set."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hypersphere.config import Call
from hypersphere.training import Config, replace

MAX_EXTENSIONS = 3  # of a grid whose best entry is at its edge

Choice = dict[str, float]
"""A factor for each axis, such as ``{"lr": 3.0, "weight": 0.1}``."""


@dataclass(frozen=True)
class Axis:
    """One setting and the factors tried for it, ascending.

    Args:
        name: for rows and reports.
        factors: multiples of the arm's own value.
        change: returns the config with the value multiplied by a factor.
        applies: returns whether a config has this setting.

    >>> batch = Axis("batch", (0.5, 1.0, 2.0), lambda config, factor: replace(config, batch_size=int(128 * factor)))
    >>> batch.change(Config(), 2.0).batch_size, batch.extend([0.5, 1.0, 2.0], best=2.0)
    (256, 4.0)
    """

    name: str
    factors: tuple[float, ...]
    change: Callable[[Config, float], Config]
    applies: Callable[[Config], bool] = field(default=lambda _: True)

    def __post_init__(self) -> None:
        if len(self.factors) < 3 or list(self.factors) != sorted(set(self.factors)) or self.factors[0] <= 0:
            raise ValueError(
                f"factors must be three or more different positive numbers in ascending order, got {self.factors}"
            )

    def extend(self, tried: Sequence[float], best: float) -> float | None:
        """Return the next factor outward, in the ratio of the last two, if the best one is at the edge; None otherwise."""
        order = sorted(tried)
        if len(order) - len(self.factors) >= MAX_EXTENSIONS or best not in (order[0], order[-1]):
            return None
        inner, outer = (order[1], order[0]) if best == order[0] else (order[-2], order[-1])
        return float(f"{outer * outer / inner:.6g}")


@dataclass(frozen=True)
class Tuning:
    """A search over the axes of an arm, one after the other. All arms have the same grid.

    Args:
        axes: the axes; those that do not apply to an arm are skipped.
        shorten: returns the config of a tuning run; by default the whole run. Shorter runs favor learning rates that learn early,
            which may be several points worse in whole runs.

    >>> tuning = Tuning((make_rate_axis(0.2, 1, 5),), shorten=lambda config: replace(config, steps=100))
    >>> choice = tuning.search(Config(), score=lambda choice: -abs(choice["lr"] - 5))  # as if 5 were best
    >>> choice, tuning.apply(Config(), choice).optimizer.arguments["lr"]
    ({'lr': 5.0}, 0.5)
    """

    axes: tuple[Axis, ...]
    shorten: Callable[[Config], Config] = field(default=lambda config: config)

    def apply(self, config: Config, choice: Mapping[str, float]) -> Config:
        """Return the config with the chosen factors applied."""
        for axis in self.axes:
            if axis.name in choice:
                config = axis.change(config, choice[axis.name])
        return config

    def search(self, config: Config, score: Callable[[Choice], float]) -> Choice:
        """Return the best factor of each axis that applies. A grid whose best entry is at its edge is extended.

        Each axis is searched at the best factors of the axes before it. Among equal scores, the factor nearest to 1 wins. A run that
        diverged has the score −∞.
        """
        chosen: Choice = {axis.name: 1.0 for axis in self.axes if axis.applies(config)}
        for axis in (axis for axis in self.axes if axis.name in chosen):
            scores = {factor: score({**chosen, axis.name: factor}) for factor in axis.factors}
            while (factor := axis.extend(list(scores), find_best(scores))) is not None:
                scores[factor] = score({**chosen, axis.name: factor})
            chosen[axis.name] = find_best(scores)
        return chosen


def find_best(scores: Mapping[float, float]) -> float:
    """Return the factor with the largest score; among equal scores the one nearest to 1.

    >>> find_best({0.3: 5.0, 1.0: 7.0, 3.0: 7.0})
    1.0
    """
    return max(scores, key=lambda factor: (scores[factor], -abs(math.log(factor))))


def make_rate_axis(*factors: float) -> Axis:
    """Return an axis of learning rates, as factors of the arm's own; that of OGD's rotations is multiplied too.

    >>> make_rate_axis(0.2, 1, 5).change(Config(), 5).optimizer.arguments["lr"]
    0.5
    """

    def change(config: Config, factor: float) -> Config:
        assert isinstance(config.optimizer, Call)
        config = replace(config, {"optimizer.lr": _multiply(config.optimizer.get("lr"), factor)})
        if not uses_ogd(config):
            return config
        return replace(config, {"rotations.lr": _multiply(config.rotations.get("lr"), factor)})

    return Axis("lr", tuple(float(factor) for factor in factors), change)


def make_rotation_rate_axis(*factors: float) -> Axis:
    """Return an axis of learning rates of OGD's rotations, as factors of the arm's own. OGD at 4λ takes the steps of Cayley at λ.

    >>> config = Config(orthogonal=Call(hs.orthogonal.overparameterize, {"method": "ogd"}))
    >>> make_rotation_rate_axis(1, 4, 16).change(config, 4).rotations.get("lr"), make_rotation_rate_axis(1, 4, 16).applies(Config())
    (0.08, False)
    """

    def change(config: Config, factor: float) -> Config:
        return replace(config, {"rotations.lr": _multiply(config.rotations.get("lr"), factor)})

    return Axis("rotations", tuple(float(factor) for factor in factors), change, uses_ogd)


def uses_ogd(config: Config) -> bool:
    """Return whether the rotations are trained by OGD, which has a learning rate of its own."""
    return config.orthogonal is not None and config.orthogonal.arguments.get("method") == "ogd"


def make_weight_axis(*factors: float) -> Axis:
    """Return an axis of penalty weights; the weights of hidden and output terms are multiplied together.

    >>> config = Config(energy=Call(hs.energy.MHE, {"hidden": 1.0, "output": 0.1}))
    >>> make_weight_axis(0.1, 1, 10).change(config, 10).energy.arguments
    {'hidden': 10.0, 'output': 1.0}
    >>> make_weight_axis(0.1, 1, 10).applies(Config())
    False
    """

    def change(config: Config, factor: float) -> Config:
        weighted = tuple(_multiply_weights(part, factor) for part in config.energies)
        return replace(config, energy=weighted[0] if len(weighted) == 1 else weighted)

    def applies(config: Config) -> bool:
        return config.energy is not None

    return Axis("weight", tuple(float(factor) for factor in factors), change, applies)


def divide_steps(times: int) -> Callable[[Config], Config]:
    """Return a function that divides the steps of a config by ``times``, for ``Tuning(shorten=…)``.

    >>> config = divide_steps(2)(Config(steps=1500))
    >>> config.steps, config.evaluate_every
    (750, 750)
    """

    def shorten(config: Config) -> Config:
        return replace(config, steps=config.steps // times, evaluate_every=config.steps // times)

    return shorten


def format_choice(choice: Mapping[str, float] | None) -> str:
    """Format a choice.

    >>> format_choice({"lr": 3.0, "weight": 0.1})
    'lr × 3, weight × 0.1'
    """
    return ", ".join(f"{name} × {factor:g}" for name, factor in choice.items()) if choice else ""


def format_changes(changes: Sequence[str]) -> str:
    """Format changed settings.

    >>> format_changes(["steps=4000", "size=none"]), format_changes([])
    ('steps=4000 size=none', 'as it is')
    """
    return " ".join(changes) or "as it is"


def _multiply_weights(part: Call, factor: float) -> Call:
    """Multiply the weights of a penalty. They must be given explicitly, because a default may be None."""
    found = {name: part.arguments[name] for name in ("hidden", "output", "weight") if name in part.arguments}
    if not found or any(value is None for value in found.values()):
        raise ValueError(f"{part.name} must have its weights written out (hidden, output or weight) to be tuned")
    return part.replace(**{name: _multiply(value, factor) for name, value in found.items()})


def _multiply(value: float, factor: float) -> float:
    return float(f"{value * factor:.6g}")  # 0.3 for 0.1 · 3, not 0.30000000000000004
