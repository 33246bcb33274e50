"""How a run is trained: plain numbers and constructor calls, checked where they are written."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

import torch
from torch.optim import Optimizer

from ..config import Call, Kind, call, replace_nested
from ..orthogonal import OGD
from .schedules import Schedule, StepRate

OptimizerCall = Annotated[
    Call, Kind(Optimizer, ("torch.optim", "hypersphere.orthogonal", "hypersphere.objectives"), given=("params",))
]
ScheduleCall = Annotated[Call, Kind(Schedule, ("hypersphere.training",))]


@dataclass(frozen=True)
class Settings:
    """The knobs of :class:`~hypersphere.training.Trainer`, whatever is trained.

    Args:
        steps: optimizer steps.
        seed: of batches, augmentation and everything drawn.
        evaluate_every, log_every, checkpoint_every: steps between evaluations, rows of the log, checkpoints.
        keep: good checkpoints that are kept, the newest first.
        monitor: the measure whose largest value is the best checkpoint; ``-name`` for the smallest.
        patience: evaluations without a new best after which training stops early; none never stops.
        keep_best: end with the weights of the best evaluation instead of the last ones.
        precision: of the network's arithmetic: no (float32), bf16 or fp16.
        accumulate: batches whose gradients are added up to one step.
        clip: largest norm of the gradient.
        ema: decay of an exponential moving average of the weights, which is what is evaluated and kept.
        average: checkpoints, the last ones, whose weights are averaged at the end.
        compile: compile the network with torch.compile.
        gradient_checkpointing: compute blocks again in the backward pass instead of keeping their activations.
        channels_last: images and filters in memory by pixel, faster for most convolutions.
        threads: of the CPU; 0 leaves torch's choice. Runs agree bit for bit with the same number.
        timeout: seconds that a process waits for the others before it gives up; longer than anything that one does alone.
        pictures: draw at the end; off where a run is one of hundreds.
        optimizer: moves every parameter but rotations; it is called with the groups of parameters.
        rotations: moves rotations that live on the orthogonal group (method ogd).
        schedule: the learning rate over time.
        freeze: names or patterns of parameters that do not learn.
        rates: factors of the learning rate by pattern of parameter names; the last pattern that fits counts.
        layer_decay: factor of the rate from each block of the network to the one before it, below 1 for fine-tuning.
        weights: start from these: a run, a safetensors file, or a state_dict that torch can load without running code.

    >>> Settings(steps=200, seed=1, optimizer=call(torch.optim.Adam, lr=1e-3)).steps
    200
    """

    steps: int = 1000
    seed: int = 0
    evaluate_every: int = 500
    log_every: int = 50
    checkpoint_every: int = 500
    keep: int = 2
    monitor: str = "accuracy"
    patience: int | None = None
    keep_best: bool = False
    precision: Literal["no", "bf16", "fp16"] = "no"
    accumulate: int = 1
    clip: float | None = None
    ema: float | None = None
    average: int = 0
    compile: bool = False
    gradient_checkpointing: bool = False
    channels_last: bool = False
    threads: int = 0
    timeout: int = 600
    pictures: bool = True
    optimizer: OptimizerCall | Callable[..., Any] | Optimizer = field(
        default_factory=lambda: call(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=5e-4)
    )
    rotations: OptimizerCall = field(default_factory=lambda: call(OGD, lr=0.01, reproject_every=100))
    schedule: ScheduleCall = field(default_factory=lambda: call(StepRate))
    freeze: tuple[str, ...] = ()
    rates: Mapping[str, float] = field(default_factory=dict)
    layer_decay: float | None = None
    weights: str | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "evaluate_every", "log_every", "checkpoint_every", "timeout"):
            _check(self, name, 1)
        _check(self, "seed", 0)
        for name, least, most in (
            ("keep", 1, 1000),
            ("average", 0, 1000),
            ("accumulate", 1, 65536),
            ("threads", 0, 1024),
        ):
            _check(self, name, least, most)
        if self.patience is not None:
            _check(self, "patience", 1)
        if self.clip is not None and not (math.isfinite(self.clip) and self.clip > 0):
            raise ValueError(f"clip must be a number > 0 or none, got {self.clip!r}")
        for name in ("ema", "layer_decay"):
            value = getattr(self, name)
            if value is not None and not 0 < value < (1 if name == "ema" else 1 + 1e-12):
                raise ValueError(f"{name} must lie in (0, 1) or be none, got {value!r}")
        if self.precision not in ("no", "bf16", "fp16"):
            raise ValueError(f"precision must be no, bf16 or fp16, got {self.precision!r}")
        for pattern, rate in self.rates.items():
            if not (isinstance(rate, int | float) and math.isfinite(rate) and rate >= 0):
                raise ValueError(f"rates must be numbers ≥ 0, got {rate!r} for {pattern!r}")
        for part in (self.optimizer, self.rotations):
            if isinstance(part, Call):
                _check_rates(part)

    def replace(self, **changes: Any) -> Any:
        """A copy with settings changed, arguments of calls by ``part__argument``.

        >>> Settings().replace(steps=10, optimizer__lr=0.5).optimizer.arguments["lr"]
        0.5
        """
        return type(self)(**replace_nested({f.name: getattr(self, f.name) for f in fields(self)}, changes))


def _check(settings: Settings, name: str, least: int, most: int | None = None) -> None:
    value = getattr(settings, name)
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not least <= value <= (2**53 - 1 if most is None else most)
    ):
        wanted = f"be an integer ≥ {least}" if most is None else f"lie in {least} … {most}"
        raise ValueError(f"{name} must {wanted}, got {value!r}")


def _check_rates(optimizer: Call) -> None:
    """Ranges that torch's optimizers do not check themselves: NaN passes every comparison that refuses a sign."""
    for name in ("lr", "momentum", "weight_decay", "dampening", "eps", "alpha", "rho"):
        value = optimizer.arguments.get(name)
        if isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"optimizer.{name} must be a finite number ≥ 0, got {value!r}")
