"""What a claim of Liu (2020) is: what was published, arms that test it, and checks from which the verdict follows."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any, Literal, get_args

from ...config import Call
from ...training import Config, replace

Size = Literal["laptop", "paper"]
SIZES: tuple[Size, ...] = get_args(Size)
Outcome = Literal["holds", "within noise", "reversed", "not measured"]
Verdict = Literal["holds", "holds in part", "does not hold here", "not measured"]

ERRORS = 2.0  # standard errors between two means before a difference counts


@dataclass(frozen=True)
class Published:
    """One table of Liu (2020), as far as the claim needs it."""

    table: str
    what: str
    values: Mapping[str, float | str]


@dataclass(frozen=True)
class Estimate:
    """Mean and standard error of a metric over seeds; the error of a single seed is unknown (NaN).

    >>> Estimate.of([1.0, 2.0, 3.0])
    Estimate(mean=2.0, error=0.5773502691896258, seeds=3)
    """

    mean: float
    error: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """From one value a seed."""
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        return cls(mean(values), error, len(values))


@dataclass(frozen=True)
class Check:
    """``arm`` has a larger (or smaller) ``metric`` than ``than``, another arm or a number.

    The difference of two means counts when it exceeds two standard errors, √(e₁² + e₂²) each; otherwise it is within noise. With
    ``no_worse`` a difference within noise is enough to hold.
    """

    name: str
    metric: str
    arm: str
    than: str | float
    larger: bool = True
    no_worse: bool = False

    def outcome(self, table: Mapping[str, Mapping[str, Estimate]]) -> Outcome:
        """By the estimates ``table[arm][metric]``; a single seed measures nothing."""
        ours = table.get(self.arm, {}).get(self.metric)
        other = (
            Estimate(self.than, 0.0, 1) if isinstance(self.than, float) else table.get(self.than, {}).get(self.metric)
        )
        if ours is None or other is None or math.isnan(ours.error + other.error):
            return "not measured"
        gain = (ours.mean - other.mean) * (1 if self.larger else -1)
        noise = ERRORS * math.hypot(ours.error, other.error)
        if gain > noise:
            return "holds"
        if gain < -noise:
            return "reversed"
        return "holds" if self.no_worse else "within noise"


def verdict(outcomes: Sequence[Outcome]) -> Verdict:
    """One rule for all claims: all checks hold; or none does, or fewer than are reversed; or something in between.

    >>> verdict(["holds", "within noise"]), verdict(["reversed", "within noise"])
    ('holds in part', 'does not hold here')
    """
    measured = [outcome for outcome in outcomes if outcome != "not measured"]
    if not measured:
        return "not measured"
    good, bad = measured.count("holds"), measured.count("reversed")
    if good == len(measured):
        return "holds"
    return "does not hold here" if good == 0 or bad > good else "holds in part"


@dataclass(frozen=True)
class Tuning:
    """Hyperparameters an arm may choose, the same for every arm, compared on a held-out part of the training set.

    ``grid`` is a name → what it changes in a config; ``short`` makes the run that is compared of the arm's config.
    """

    grid: Mapping[str, Callable[[Config], Config]]
    short: Callable[[Config], Config]


def rates(*factors: float) -> dict[str, Callable[[Config], Config]]:
    """A grid of learning rates, as factors of the arm's own; that of rotations (OGD) is multiplied too.

    >>> rates(1, 5)["lr × 5"](Config()).optimizer.arguments["lr"]
    0.5
    """

    def scaled(factor: float) -> Callable[[Config], Config]:
        def change(config: Config) -> Config:
            assert isinstance(config.optimizer, Call)
            config = replace(config, optimizer__lr=_product(config.optimizer.get("lr"), factor))
            if config.orthogonal is None or config.orthogonal.arguments.get("method") != "ogd":
                return config
            return replace(config, rotations__lr=_product(config.rotations.get("lr"), factor))

        return change

    return {f"lr × {factor:g}": scaled(factor) for factor in factors}


def _product(rate: float, factor: float) -> float:
    return float(f"{rate * factor:.6g}")  # 0.1 · 3 as it is written in a config, not 0.30000000000000004


@dataclass(frozen=True)
class Claim:
    """A claim of Liu (2020) and the experiment that tests it.

    ``arms(size)`` are the configs that are compared, by name; a name ``group/arm`` puts it into a table of its own. ``paper`` is the
    text's setting, ``laptop`` the one recorded here, whose ``differences`` are spelled out. ``metrics`` are the columns of the table.
    """

    id: str
    title: str
    statement: str
    published: tuple[Published, ...]
    differences: tuple[str, ...]
    arms: Callable[[Size], dict[str, Config]]
    metrics: Mapping[str, str]
    checks: tuple[Check, ...]
    why: str
    picture: Callable[[Sequence[dict[str, Any]]], Any]
    """rows → a figure"""
    caption: str
    tuning: Tuning | None = field(default=None)

    def configs(self, size: Size) -> dict[str, Config]:
        """The arms at a size, named for their folder."""
        if size not in SIZES:
            raise ValueError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
        return {name: replace(config, name=f"{self.id} {name}") for name, config in self.arms(size).items()}
