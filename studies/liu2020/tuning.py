"""Settings an arm may choose for itself, on held-out training samples: the rate, and the weight of its penalty."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hypersphere.config import Call
from hypersphere.training import Config, replace

REACH = 3  # how often a grid is extended where its best entry is at its edge

Choice = dict[str, float]
"""A factor for each axis, such as ``{"lr": 3.0, "weight": 0.1}``."""


@dataclass(frozen=True)
class Axis:
    """One setting and the factors tried for it, ascending.

    Args:
        name: for rows and reports.
        factors: of the arm's own value.
        change: a config with its value multiplied.
        applies: whether a config has this setting.

    >>> batch = Axis("batch", (0.5, 1.0, 2.0), lambda config, factor: replace(config, batch_size=int(128 * factor)))
    >>> batch.change(Config(), 2.0).batch_size, batch.beyond([0.5, 1.0, 2.0], best=2.0)
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

    def beyond(self, tried: Sequence[float], best: float) -> float | None:
        """The next factor outward if the best is the smallest or largest tried, in the ratio of the last two."""
        order = sorted(tried)
        if len(order) - len(self.factors) >= REACH or best not in (order[0], order[-1]):
            return None
        inner, outer = (order[1], order[0]) if best == order[0] else (order[-2], order[-1])
        return float(f"{outer * outer / inner:.6g}")


@dataclass(frozen=True)
class Tuning:
    """The axes an arm may choose on, one after the other, the same for every arm that has them.

    ``short`` makes the run that is compared of the arm's config: the whole run where it is left out. A short one favors what
    learns soon, and may choose a rate that is points worse in the whole.

    >>> tuning = Tuning((rates(0.2, 1, 5),), short=lambda config: replace(config, steps=100))
    >>> choice = tuning.search(Config(), score=lambda choice: -abs(choice["lr"] - 5))  # as if 5 were best
    >>> choice, tuning.applied(Config(), choice).optimizer.arguments["lr"]
    ({'lr': 5.0}, 0.5)
    """

    axes: tuple[Axis, ...]
    short: Callable[[Config], Config] = field(default=lambda config: config)

    def applied(self, config: Config, choice: Mapping[str, float]) -> Config:
        """The config with the chosen factors."""
        for axis in self.axes:
            if axis.name in choice:
                config = axis.change(config, choice[axis.name])
        return config

    def search(self, config: Config, score: Callable[[Choice], float]) -> Choice:
        """The best factor of each axis that the config has, extending a grid whose best entry is at its edge.

        A later axis is searched at the best factor of those before it. Of equal scores the factor nearest 1 wins; a run that
        diverged has the score −∞.
        """
        chosen: Choice = {axis.name: 1.0 for axis in self.axes if axis.applies(config)}
        for axis in (axis for axis in self.axes if axis.name in chosen):
            scores = {factor: score({**chosen, axis.name: factor}) for factor in axis.factors}
            while (further := axis.beyond(list(scores), best_of(scores))) is not None:
                scores[further] = score({**chosen, axis.name: further})
            chosen[axis.name] = best_of(scores)
        return chosen


def best_of(scores: Mapping[float, float]) -> float:
    """The factor with the largest score; of equals the one nearest 1.

    >>> best_of({0.3: 5.0, 1.0: 7.0, 3.0: 7.0})
    1.0
    """
    return max(scores, key=lambda factor: (scores[factor], -abs(math.log(factor))))


def rates(*factors: float) -> Axis:
    """Learning rates as factors of the arm's own; that of rotations (OGD) is multiplied too.

    >>> rates(0.2, 1, 5).change(Config(), 5).optimizer.arguments["lr"]
    0.5
    """

    def change(config: Config, factor: float) -> Config:
        assert isinstance(config.optimizer, Call)
        config = replace(config, {"optimizer.lr": _product(config.optimizer.get("lr"), factor)})
        if not uses_ogd(config):
            return config
        return replace(config, {"rotations.lr": _product(config.rotations.get("lr"), factor)})

    return Axis("lr", tuple(float(factor) for factor in factors), change)


def rotation_rates(*factors: float) -> Axis:
    """Learning rates of rotations (OGD), as factors of the arm's own: OGD at 4λ steps like Cayley at λ.

    >>> config = Config(orthogonal=Call(hs.orthogonal.overparameterize, {"method": "ogd"}))
    >>> rotation_rates(1, 4, 16).change(config, 4).rotations.get("lr"), rotation_rates(1, 4, 16).applies(Config())
    (0.08, False)
    """

    def change(config: Config, factor: float) -> Config:
        return replace(config, {"rotations.lr": _product(config.rotations.get("lr"), factor)})

    return Axis("rotations", tuple(float(factor) for factor in factors), change, uses_ogd)


def uses_ogd(config: Config) -> bool:
    """Whether rotations live on the orthogonal group and have an optimizer of their own."""
    return config.orthogonal is not None and config.orthogonal.arguments.get("method") == "ogd"


def weights(*factors: float) -> Axis:
    """Weights of the regularizers of an arm: those of its hidden and its output term together.

    >>> config = Config(energy=Call(hs.energy.MHE, {"hidden": 1.0, "output": 0.1}))
    >>> weights(0.1, 1, 10).change(config, 10).energy.arguments
    {'hidden': 10.0, 'output': 1.0}
    >>> weights(0.1, 1, 10).applies(Config())
    False
    """

    def change(config: Config, factor: float) -> Config:
        weighted = tuple(_weighted(part, factor) for part in config.energies)
        return replace(config, energy=weighted[0] if len(weighted) == 1 else weighted)

    def applies(config: Config) -> bool:
        return config.energy is not None

    return Axis("weight", tuple(float(factor) for factor in factors), change, applies)


def shorter(times: int) -> Callable[[Config], Config]:
    """A run of one part in ``times`` of the steps, measured at its end: the ``short`` of a :class:`Tuning`.

    >>> short = shorter(2)(Config(steps=1500))
    >>> short.steps, short.evaluate_every
    (750, 750)
    """

    def short(config: Config) -> Config:
        return replace(config, steps=config.steps // times, evaluate_every=config.steps // times)

    return short


def shown_choice(choice: Mapping[str, float] | None) -> str:
    """A choice in words.

    >>> shown_choice({"lr": 3.0, "weight": 0.1})
    'lr × 3, weight × 0.1'
    """
    return ", ".join(f"{name} × {factor:g}" for name, factor in choice.items()) if choice else ""


def shown_changes(changes: Sequence[str]) -> str:
    """Changed settings in words.

    >>> shown_changes(["steps=4000", "size=none"]), shown_changes([])
    ('steps=4000 size=none', 'as it is')
    """
    return " ".join(changes) or "as it is"


def _weighted(part: Call, factor: float) -> Call:
    """A penalty with its weights multiplied; they must be written out, since a default of None is not a number."""
    found = {name: part.arguments[name] for name in ("hidden", "output", "weight") if name in part.arguments}
    if not found or any(value is None for value in found.values()):
        raise ValueError(f"{part.name} must have its weights written out (hidden, output or weight) to be tuned")
    return part.replace(**{name: _product(value, factor) for name, value in found.items()})


def _product(value: float, factor: float) -> float:
    return float(f"{value * factor:.6g}")  # 0.1 · 3 as it is written in a config, not 0.30000000000000004
