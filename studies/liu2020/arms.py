"""What a claim compares: an arm has settings, and gives a row for a seed. What makes the row is the arm's own matter."""

import datetime
import functools
import json
import math
import pathlib
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from hypersphere import __version__
from hypersphere.config import Call, as_call, assign, encode, flatten
from hypersphere.config.documents import NAME
from hypersphere.training import Config

Row = dict[str, Any]
"""``metrics`` by name, and beside them what pictures need: ``curve``, ``points``, ``images``."""


class Arm(ABC):
    """One side of a comparison.

    >>> class Coin(Arm):
    ...     data = "none"
    ...     def setting(self, defaults=True): return {"sides": 2}
    ...     def make(self, seed, folder, threads): return {"metrics": {"heads": float(seed % 2)}}
    >>> Coin().row(1, pathlib.Path("runs"))["metrics"]
    {'heads': 1.0}
    """

    @property
    @abstractmethod
    def data(self) -> str:
        """The dataset's name, for the summary."""

    @abstractmethod
    def setting(self, defaults: bool = True) -> dict[str, Any]:
        """Everything that decides the row but the seed, as one level of JSON values; only what is written without ``defaults``."""

    @abstractmethod
    def make(self, seed: int, folder: pathlib.Path, threads: int) -> Row:
        """The metrics of a seed and what pictures need; ``folder`` is for checkpoints, so that a kill costs little."""

    def made(self, row: Row) -> bool:
        """Whether a row has this arm's setting. An argument that is younger than the row is not in it: that counts as its default.

        >>> arm = Training(Config(steps=10, data=Call(hs.data.Omniglot)))
        >>> older = {key: value for key, value in arm.setting().items() if key != "data.held_out"}
        >>> arm.made({"setting": older}), arm.made({"setting": older | {"data.held_out": 5}})
        (True, False)
        """
        (whole, written), there = self._settings, row["setting"]
        return written.keys() <= there.keys() and there == {key: whole.get(key) for key in there}

    @functools.cached_property
    def _settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The setting as rows have it, with and without defaults."""
        return stored(self.setting()), stored(self.setting(defaults=False))

    def row(self, seed: int, folder: pathlib.Path, threads: int = 0) -> Row:
        """What :meth:`make` gives, with its conditions."""
        start, spent = time.perf_counter(), time.process_time()
        found = self.make(seed, folder, threads)
        # What is not a number (angles of features that are all the same) cannot be averaged, nor written as JSON.
        metrics = {key: short(value) for key, value in found.pop("metrics").items() if math.isfinite(value)}
        return {
            "metrics": metrics,
            "diverged": False,
            **found,
            "setting": stored(self.setting()),
            "seconds": round(time.perf_counter() - start, 1),
            "cpu_seconds": round(time.process_time() - spent, 1),
            "threads": torch.get_num_threads(),
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "version": __version__,
        }


@dataclass(frozen=True)
class Computation(Arm):
    """A function of a seed: no training, only numbers.

    ``function`` is a call whose target takes ``seed`` beside its own arguments and returns a row's ``metrics`` and, if there is
    something to draw, ``curve`` or ``images``.

    Args:
        function: what is computed, with its settings.
        source: name of the dataset it reads; "none" where it draws its own numbers.

    >>> def power(exponent: float, seed: int): return {"metrics": {"value": 2.0**exponent}}
    >>> arm = Computation(Call(power, {"exponent": 3.0}))
    >>> arm.row(0, pathlib.Path("runs"))["metrics"], arm.setting()["function.exponent"]
    ({'value': 8.0}, 3.0)
    """

    function: Call
    source: str = "none"

    @property
    def data(self) -> str:
        """The dataset's name."""
        return self.source

    def setting(self, defaults: bool = True) -> dict[str, Any]:
        """The function's name and all of its arguments."""
        return flatten({"function": encode(self.function, defaults=defaults, given=("seed",))})

    def make(self, seed: int, folder: pathlib.Path, threads: int) -> Row:
        """Call the function; whatever it draws, it draws from the seed."""
        if threads:
            torch.set_num_threads(threads)
        row: Row = self.function.build(seed=seed)
        return row


@dataclass(frozen=True)
class Training(Arm):
    """A run of a config, measured as its task measures, and by further ``measures`` at its end.

    Args:
        config: of the run; its seed is replaced.
        measures: calls whose targets take ``experiment`` and ``folder`` and return more metrics of the trained network.
        held: changes of the config that put held-out training samples in place of the test set: a tenth of them by default.
        held_measures: those of the measures that are also taken there.

    >>> arm = Training(Config(steps=10, batch_size=64, seed=3))
    >>> arm.data, arm.setting()
    ('Digits', {'steps': 10, 'batch_size': 64})
    """

    config: Config
    measures: tuple[Call, ...] = ()
    held: Mapping[str, Any] = field(default_factory=lambda: {"samples.validation": 0.1})
    held_measures: tuple[Call, ...] = ()

    @property
    def data(self) -> str:
        """The dataset's name."""
        return self.config.data.name

    def with_config(self, config: Config) -> "Training":
        """The same arm with another config."""
        return replace(self, config=config)

    def changed(self, changes: Sequence[str]) -> "Training":
        """The same arm with settings changed by ``key.path=value``.

        >>> Training(Config(steps=10)).changed(["steps=5", "head=ArcFace"]).setting()["steps"]
        5
        """
        return self.with_config(assign(as_call(self.config), changes).build())

    def held_out(self, config: Config) -> "Training":
        """An arm for choosing settings: a held-out part of the training set is measured in place of the test set."""
        return Training(config.replace(**self.held), self.held_measures)

    def setting(self, defaults: bool = True) -> dict[str, Any]:
        """The knobs that are not at their defaults; not the name, the seed, the number of threads and the pictures."""
        usual, chosen = _usual(), flatten(encode(self.config, defaults=defaults))
        left_out = ("name", "seed", "threads", "pictures", NAME)
        found = {k: v for k, v in chosen.items() if k not in left_out and (k not in usual or usual[k] != v)}
        for index, measure in enumerate(self.measures):
            found |= flatten({f"measures.{index}": encode(measure, defaults=defaults, given=("experiment", "folder"))})
        return found

    def make(self, seed: int, folder: pathlib.Path, threads: int) -> Row:
        """Train or resume, then measure. A loss that is not finite is a result: no metrics."""
        from .training_run import trained_row

        config: Config = self.config.replace(seed=seed, threads=threads, pictures=False)
        return trained_row(config, self.measures, folder)


def differing(one: Arm, other: Arm) -> dict[str, tuple[Any, Any]]:
    """The settings in which two arms differ, by key; None stands where one has no such setting, or its default.

    >>> differing(Training(Config(steps=10)), Training(Config(steps=10, batch_size=64)))
    {'batch_size': (None, 64)}
    """
    a, b = stored(one.setting()), stored(other.setting())
    return {key: (a.get(key), b.get(key)) for key in [*a, *(k for k in b if k not in a)] if a.get(key) != b.get(key)}


def stored(setting: Mapping[str, Any]) -> dict[str, Any]:
    """A setting as a row has it: tuples are lists."""
    found: dict[str, Any] = json.loads(json.dumps(setting))
    return found


def short(value: float) -> float:
    """Six digits: more are noise, and make long files."""
    return float(f"{value:.6g}")


@functools.cache
def _usual() -> dict[str, Any]:
    return flatten(encode(Config(), defaults=True))
