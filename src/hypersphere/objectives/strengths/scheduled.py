"""Margins that change with training: a ramp, and stages such as large-margin fine-tuning."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..margins.margin import Context, Strength, evaluate_strength


class _Schedule(Strength):
    """A strength that depends on the number of training steps. ``head.step()`` advances it, and it is saved with the head."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.tensor(0, dtype=torch.int64))

    def step(self) -> None:
        """Advance the schedule by one step. Call once per optimizer step."""
        self.steps += 1


class Ramp(_Schedule):
    r"""m changes from ``start`` to ``stop`` between the steps ``begin`` and ``end``, and is constant before and after.

    Let τ ∈ [0, 1] be the share of these steps that have passed. m = start + (stop − start)·r(τ) with r = τ (``"linear"``) or
    r = (1 − 10^{−3τ})/(1 − 10^{−3}) (``"exponential"``, which changes most at the beginning; recipes for speakers use it
    between epochs 20 and 40). ``stop`` may be another strength, such as a margin by class.

    >>> m = Ramp(0.5, end=4)
    >>> m.step(), m(hs.objectives.margins.Context())
    (None, tensor(0.1250))
    """

    def __init__(
        self,
        stop: float | Strength,
        *,
        end: int,
        start: float = 0.0,
        begin: int = 0,
        law: Literal["linear", "exponential"] = "linear",
    ):
        super().__init__()
        if not 0 <= begin < end:
            raise ValueError(f"begin and end must be steps with 0 ≤ begin < end, got {begin!r} and {end!r}")
        if law not in ("linear", "exponential"):
            raise ValueError(f'law must be "linear" or "exponential", got {law!r}')
        ends = (stop.least, stop.most) if isinstance(stop, Strength) else (float(stop),) * 2
        if not all(map(math.isfinite, (start, *ends))):
            raise ValueError(f"start and stop must be finite numbers, got {start!r} and {stop!r}")
        self.start, self.stop, self.begin, self.end, self.law = float(start), stop, begin, end, law
        self.num_classes = stop.num_classes if isinstance(stop, Strength) else None
        self.constant = stop.constant if isinstance(stop, Strength) else True
        self.least, self.most = min(self.start, *ends), max(self.start, *ends)

    def forward(self, context: Context) -> Float[Tensor, "..."]:
        """Return m at the current step."""
        passed = ((self.steps - self.begin) / (self.end - self.begin)).clamp(0, 1)
        share = passed if self.law == "linear" else (1 - 10 ** (-3 * passed)) / (1 - 1e-3)
        return self.start + (evaluate_strength(self.stop, context) - self.start) * share

    def extra_repr(self) -> str:
        """Return the values and steps of the ramp."""
        stop = "" if isinstance(self.stop, Strength) else f"stop={self.stop:g}, "
        return f"{stop}start={self.start:g}, begin={self.begin}, end={self.end}, law={self.law!r}"


class Stages(_Schedule):
    """m is ``values[i]`` until step ``at[i]``, and the last value from then on.

    ``Stages([0.2, 0.5], at=[90_000])`` is large-margin fine-tuning: the last part of training with a larger margin.

    >>> m = Stages([0.2, 0.5], at=[1])
    >>> m(hs.objectives.margins.Context()), m.step(), m(hs.objectives.margins.Context())
    (tensor(0.2000), None, tensor(0.5000))
    """

    def __init__(self, values: Sequence[float], *, at: Sequence[int]):
        super().__init__()
        if len(values) != len(at) + 1 or not all(map(math.isfinite, values)):
            raise ValueError(f"values must be finite numbers, one more than at has steps, got {values!r} and {at!r}")
        if list(at) != sorted(set(at)) or any(step < 1 for step in at):
            raise ValueError(f"at must be increasing steps ≥ 1, got {at!r}")
        self.constant = True
        self.values, self.at = [float(v) for v in values], list(at)
        self.least, self.most = min(self.values), max(self.values)

    def forward(self, context: Context) -> Float[Tensor, "..."]:
        """Return m at the current step."""
        at = torch.tensor(self.at, device=self.steps.device)
        return torch.tensor(self.values, device=self.steps.device).take((self.steps >= at).sum())

    def extra_repr(self) -> str:
        """Return the values and the steps at which they change."""
        return f"values={self.values}, at={self.at}"
