"""Learning rate schedules: a warm-up followed by a shape; one class per shape."""

import math
from abc import ABC, abstractmethod
from typing import Any


class Schedule(ABC):
    """A factor of the learning rate for every step.

    Args:
        warmup: steps over which the factor rises linearly to 1 before the shape begins.

    >>> class Halving(Schedule):
    ...     def shape(self, done, steps, step): return 0.5**done
    >>> [Halving(warmup=2).factor(step, 10) for step in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """

    def __init__(self, *, warmup: int = 0):
        if not (isinstance(warmup, int) and warmup >= 0):
            raise ValueError(f"warmup must be an integer ≥ 0, got {warmup!r}")
        self.warmup = warmup

    def factor(self, step: int, steps: int) -> float:
        """Return the factor of step ``step``, counted from 0, of ``steps``."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        return self.shape(step - self.warmup, max(steps - self.warmup, 1), step)

    @abstractmethod
    def shape(self, done: int, steps: int, step: int) -> float:
        """Return the factor ``done`` steps after the warm-up; ``steps`` remain after the warm-up, ``step`` counts from the start."""

    def observe(self, score: float) -> None:  # noqa: B027 - most shapes do not look at scores
        """Record the ``score`` of an evaluation; larger is better."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027 - most shapes have no state
        """Go on from a kept state."""


class ConstantRate(Schedule):
    """A constant learning rate after the warm-up.

    >>> ConstantRate(warmup=2).factor(0, 10), ConstantRate().factor(9, 10)
    (0.5, 1.0)
    """

    def shape(self, done: int, steps: int, step: int) -> float:
        """1."""
        return 1.0


class StepRate(Schedule):
    """The rate is multiplied by ``gamma`` at each milestone.

    Args:
        milestones: steps, counted from the start of the run.
        gamma: a positive number.
        warmup: steps over which the factor rises linearly to 1 first.

    >>> [StepRate(milestones=(10, 20)).factor(step, 30) for step in (0, 10, 25)]
    [1.0, 0.1, 0.010000000000000002]
    """

    def __init__(self, *, milestones: tuple[int, ...] = (), gamma: float = 0.1, warmup: int = 0):
        super().__init__(warmup=warmup)
        if not (math.isfinite(gamma) and gamma > 0):
            raise ValueError(f"gamma must be a number > 0, got {gamma!r}")
        if any(milestone < 0 for milestone in milestones):
            raise ValueError(f"milestones must be steps ≥ 0, got {milestones!r}")
        self.milestones, self.gamma = tuple(milestones), gamma

    def shape(self, done: int, steps: int, step: int) -> float:
        """γ to the number of milestones passed."""
        return float(self.gamma ** sum(step >= milestone for milestone in self.milestones))


class CosineRate(Schedule):
    """Cosine decay from 1 to ``final``.

    >>> [round(CosineRate().factor(step, 10), 3) for step in (0, 5, 10)]
    [1.0, 0.5, 0.0]
    """

    def __init__(self, *, final: float = 0.0, warmup: int = 0):
        super().__init__(warmup=warmup)
        if not 0 <= final <= 1:
            raise ValueError(f"final must lie in [0, 1], got {final!r}")
        self.final = final

    def shape(self, done: int, steps: int, step: int) -> float:
        """(1 + cos(π·done/steps))/2, above the final factor."""
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * min(done / steps, 1.0)))


class PlateauRate(Schedule):
    """The rate is multiplied by ``gamma`` when ``patience`` evaluations in a row have not improved on the best.

    >>> rate = PlateauRate(patience=2)
    >>> for score in (0.5, 0.6, 0.6, 0.6):
    ...     rate.observe(score)
    >>> rate.factor(100, 1000)
    0.1
    """

    def __init__(self, *, gamma: float = 0.1, patience: int = 3, warmup: int = 0):
        super().__init__(warmup=warmup)
        if not 0 < gamma < 1:
            raise ValueError(f"gamma must lie in (0, 1), got {gamma!r}")
        if patience < 1:
            raise ValueError(f"patience must be an integer ≥ 1, got {patience!r}")
        self.gamma, self.patience = gamma, patience
        self.best: float | None = None
        self.waited = 0
        self.falls = 0

    def observe(self, score: float) -> None:
        """Count evaluations without a new best."""
        if self.best is None or score > self.best:
            self.best, self.waited = score, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.falls, self.waited = self.falls + 1, 0

    def shape(self, done: int, steps: int, step: int) -> float:
        """γ to the number of falls."""
        return float(self.gamma**self.falls)

    def state_dict(self) -> dict[str, Any]:
        """Return the best score, the evaluations since then, and the number of reductions."""
        return {"best": self.best, "waited": self.waited, "falls": self.falls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.best, self.waited, self.falls = state["best"], state["waited"], state["falls"]
