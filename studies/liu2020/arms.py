"""The arms of a claim: each has settings, and computes one row of results per seed."""

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
"""``metrics`` by name, and the data of pictures: ``curve``, ``points``, ``images``."""


class Arm(ABC):
    """One of the compared settings of a claim.

    >>> class Coin(Arm):
    ...     data = "none"
    ...     def list_settings(self, defaults=True): return {"sides": 2}
    ...     def run(self, seed, folder, threads): return {"metrics": {"heads": float(seed % 2)}}
    >>> Coin().make_row(1, pathlib.Path("runs"))["metrics"]
    {'heads': 1.0}
    """

    @property
    @abstractmethod
    def data(self) -> str:
        """The dataset's name, for the summary."""

    @abstractmethod
    def list_settings(self, defaults: bool = True) -> dict[str, Any]:
        """Return all settings that determine a row except the seed, as a flat dictionary; without ``defaults`` only explicit ones."""

    @abstractmethod
    def run(self, seed: int, folder: pathlib.Path, threads: int) -> Row:
        """Compute the metrics of a seed and the data of pictures; ``folder`` receives checkpoints."""

    def matches(self, row: Row) -> bool:
        """Return whether a row has the settings of this arm. An argument that is newer than the row must have its default value.

        >>> arm = Training(Config(steps=10, data=Call(hs.data.Omniglot)))
        >>> older = {key: value for key, value in arm.list_settings().items() if key != "data.held_out"}
        >>> arm.matches({"setting": older}), arm.matches({"setting": older | {"data.held_out": 5}})
        (True, False)
        """
        (settings, explicit), stored = self._settings, row["setting"]
        return explicit.keys() <= stored.keys() and stored == {key: settings.get(key) for key in stored}

    @functools.cached_property
    def _settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The settings in the format of rows, with and without defaults."""
        return convert_to_json(self.list_settings()), convert_to_json(self.list_settings(defaults=False))

    def make_row(self, seed: int, folder: pathlib.Path, threads: int = 0) -> Row:
        """Run a seed and return its row: metrics, settings, times, threads, date and version."""
        start, cpu_start = time.perf_counter(), time.process_time()
        found = self.run(seed, folder, threads)
        # NaN, such as the angles of features that are all equal, can neither be averaged nor written as JSON.
        metrics = {key: round_digits(value) for key, value in found.pop("metrics").items() if math.isfinite(value)}
        return {
            "metrics": metrics,
            "diverged": False,
            **found,
            "setting": convert_to_json(self.list_settings()),
            "seconds": round(time.perf_counter() - start, 1),
            "cpu_seconds": round(time.process_time() - cpu_start, 1),
            "threads": torch.get_num_threads(),
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            "version": __version__,
        }


@dataclass(frozen=True)
class Computation(Arm):
    """An arm that calls a function of the seed instead of training a config.

    Args:
        function: a call whose target takes ``seed`` in addition to its own arguments, and returns a row's ``metrics`` and optionally
            ``curve`` or ``images``.
        source: name of the dataset that the function reads; "none" if it reads none.

    >>> def power(exponent: float, seed: int): return {"metrics": {"value": 2.0**exponent}}
    >>> arm = Computation(Call(power, {"exponent": 3.0}))
    >>> arm.make_row(0, pathlib.Path("runs"))["metrics"], arm.list_settings()["function.exponent"]
    ({'value': 8.0}, 3.0)
    """

    function: Call
    source: str = "none"

    @property
    def data(self) -> str:
        """The dataset's name."""
        return self.source

    def list_settings(self, defaults: bool = True) -> dict[str, Any]:
        """Return the name of the function and all of its arguments."""
        return flatten({"function": encode(self.function, defaults=defaults, given=("seed",))})

    def run(self, seed: int, folder: pathlib.Path, threads: int) -> Row:
        """Call the function with the seed."""
        if threads:
            torch.set_num_threads(threads)
        row: Row = self.function.build(seed=seed)
        return row


@dataclass(frozen=True)
class Training(Arm):
    """An arm that trains a config and evaluates it as its task does.

    Args:
        config: the config; its seed is replaced.
        measures: calls whose targets take ``experiment`` and ``folder`` and return further metrics of the trained network.
        validation_changes: changes of the config that replace the test set by validation samples, by default a tenth
            of the training set.
        validation_measures: those measures that are also computed on validation samples.

    >>> arm = Training(Config(steps=10, batch_size=64, seed=3))
    >>> arm.data, arm.list_settings()
    ('Digits', {'steps': 10, 'batch_size': 64})
    """

    config: Config
    measures: tuple[Call, ...] = ()
    validation_changes: Mapping[str, Any] = field(default_factory=lambda: {"samples.validation": 0.1})
    validation_measures: tuple[Call, ...] = ()

    @property
    def data(self) -> str:
        """The dataset's name."""
        return self.config.data.name

    def with_config(self, config: Config) -> "Training":
        """Return the same arm with another config."""
        return replace(self, config=config)

    def with_changes(self, changes: Sequence[str]) -> "Training":
        """Return the same arm with settings changed by ``key.path=value``.

        >>> Training(Config(steps=10)).with_changes(["steps=5", "head=ArcFace"]).list_settings()["steps"]
        5
        """
        return self.with_config(assign(as_call(self.config), changes).build())

    def with_validation(self, config: Config) -> "Training":
        """Return an arm for tuning, which is evaluated on validation samples instead of the test set."""
        return Training(config.replace(**self.validation_changes), self.validation_measures)

    def list_settings(self, defaults: bool = True) -> dict[str, Any]:
        """Return the settings that differ from their defaults, without name, seed, number of threads and pictures."""
        default, settings = _get_default_settings(), flatten(encode(self.config, defaults=defaults))
        excluded = ("name", "seed", "threads", "pictures", NAME)
        found = {k: v for k, v in settings.items() if k not in excluded and (k not in default or default[k] != v)}
        for index, measure in enumerate(self.measures):
            found |= flatten({f"measures.{index}": encode(measure, defaults=defaults, given=("experiment", "folder"))})
        return found

    def run(self, seed: int, folder: pathlib.Path, threads: int) -> Row:
        """Train or resume, then evaluate. A run whose loss is not finite has no metrics."""
        from .training_run import train_and_measure

        config: Config = self.config.replace(seed=seed, threads=threads, pictures=False)
        return train_and_measure(config, self.measures, folder)


def compare_settings(one: Arm, other: Arm) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two arms differ, by key; None means that the arm does not set it.

    >>> compare_settings(Training(Config(steps=10)), Training(Config(steps=10, batch_size=64)))
    {'batch_size': (None, 64)}
    """
    a, b = convert_to_json(one.list_settings()), convert_to_json(other.list_settings())
    return {key: (a.get(key), b.get(key)) for key in [*a, *(k for k in b if k not in a)] if a.get(key) != b.get(key)}


def convert_to_json(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Convert settings to the format of rows, in which tuples are lists."""
    found: dict[str, Any] = json.loads(json.dumps(setting))
    return found


def round_digits(value: float) -> float:
    """Round to six digits; more would be noise and make the files longer."""
    return float(f"{value:.6g}")


@functools.cache
def _get_default_settings() -> dict[str, Any]:
    return flatten(encode(Config(), defaults=True))
