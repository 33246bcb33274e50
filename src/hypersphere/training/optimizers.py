"""Optimizers: learning rate schedules, parameter groups, frozen parameters, and gradient clipping."""

import fnmatch
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from ..collectives import get_local, is_sharded
from ..config import Call
from ..orthogonal import group_parameters
from ..orthogonal.finetuning.generator_groups import find_rate_factors

if TYPE_CHECKING:
    from .settings import Settings


class Schedule(ABC):
    """A learning rate schedule: the factor by which the learning rate is multiplied at each step.

    A subclass defines the factor after the warm-up by :meth:`shape`.

    Args:
        warmup: Number of steps over which the factor first rises linearly to 1.

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
        """Return the factor at ``step``, counted from 0, in a run of ``steps`` steps."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        return self.shape(step - self.warmup, max(steps - self.warmup, 1), step)

    @abstractmethod
    def shape(self, done: int, steps: int, step: int) -> float:
        """Return the factor after the warm-up.

        Args:
            done: Steps since the end of the warm-up.
            steps: Number of all steps after the warm-up.
            step: Steps since the start of the run.
        """

    def observe(self, score: float) -> None:  # noqa: B027 - most schedules ignore scores
        """Take note of the ``score`` of an evaluation. Higher scores are better."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027 - most schedules have no state
        """Restore a saved state."""


class ConstantRate(Schedule):
    """A constant learning rate after the warm-up.

    >>> ConstantRate(warmup=2).factor(0, 10), ConstantRate().factor(9, 10)
    (0.5, 1.0)
    """

    def shape(self, done: int, steps: int, step: int) -> float:
        """Return 1."""
        return 1.0


class StepRate(Schedule):
    """A schedule that multiplies the learning rate by ``gamma`` at each milestone.

    Args:
        milestones: Steps, counted from the start of the run.
        gamma: A positive number.
        warmup: Number of steps over which the factor first rises linearly to 1.

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
        """Return γ to the power of the number of passed milestones."""
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
        """Return final + (1 − final)·(1 + cos(π·done/steps))/2."""
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * min(done / steps, 1.0)))


class PlateauRate(Schedule):
    """A schedule that multiplies the learning rate by ``gamma`` after ``patience`` consecutive evaluations without a new best.

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
        """Count evaluations without a new best score, and reduce the factor if there are ``patience`` in a row."""
        if self.best is None or score > self.best:
            self.best, self.waited = score, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.falls, self.waited = self.falls + 1, 0

    def shape(self, done: int, steps: int, step: int) -> float:
        """Return γ to the power of the number of reductions."""
        return float(self.gamma**self.falls)

    def state_dict(self) -> dict[str, Any]:
        """Return the best score, the number of evaluations since then or since a reduction, and the number of reductions."""
        return {"best": self.best, "waited": self.waited, "falls": self.falls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.best, self.waited, self.falls = state["best"], state["waited"], state["falls"]


def build_optimizers(settings: "Settings", model: nn.Module) -> list[Optimizer]:
    """Return the optimizer of all parameters, and a second one for the rotations of ``method="ogd"`` if the model has any.

    Weight decay applies only to parameters with two or more dimensions: not to biases, learned radii and normalization scales.
    Parameters are grouped by weight decay and by the factor of their learning rate, which the settings ``rates``,
    ``layer_decay`` and ``scale_generators`` determine. If ``settings.optimizer`` is an optimizer, it is returned unchanged.

    Raises:
        ValueError: If every parameter is frozen, or a pattern matches no parameter.
    """
    freeze(model, settings.freeze)
    if isinstance(settings.optimizer, Optimizer):
        return [settings.optimizer]
    rotations, others = group_parameters(model)
    trained = {id(parameter) for parameter in others if parameter.requires_grad}
    factors = compute_rate_factors(settings, model)
    scales = find_rate_factors(model) if settings.scale_generators else {}
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if id(parameter) in trained:
            factor = factors[name] * scales.get(id(parameter), 1.0)
            groups.setdefault((parameter.ndim > 1, factor), []).append(parameter)
    if not groups and not rotations:
        raise ValueError("there is nothing to train: every parameter is frozen")
    build = settings.optimizer.build if isinstance(settings.optimizer, Call) else settings.optimizer
    entries: list[dict[str, Any]] = []
    for (decays, factor), parameters in groups.items():
        entries.append({"params": parameters, "factor": factor} | ({} if decays else {"weight_decay": 0.0}))
    optimizers = [build(params=entries)] if entries else []
    if rotations:
        optimizers.append(settings.rotations.build(params=rotations))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["base_lr"] = float(group["lr"]) * group.get("factor", 1.0)
    return optimizers


def freeze(model: nn.Module, patterns: tuple[str, ...]) -> None:
    """Freeze the parameters whose names match a pattern. Raise a ``ValueError`` for a pattern without a match."""
    names = dict(model.named_parameters())
    for pattern in patterns:
        matches = [name for name in names if is_match(name, pattern)]
        if not matches:
            raise ValueError(f"freeze: no parameter is called {pattern!r}; there are {', '.join(names)}")
        for name in matches:
            names[name].requires_grad_(False)


def compute_rate_factors(settings: "Settings", model: nn.Module) -> dict[str, float]:
    """Return the learning rate factor of each parameter by name, from ``layer_decay`` and ``rates``."""
    names = [name for name, _ in model.named_parameters()]
    factors = dict.fromkeys(names, 1.0)
    if settings.layer_decay is not None:
        blocks = list(dict.fromkeys(_get_block(name) for name in names))
        factors = {name: settings.layer_decay ** (len(blocks) - 1 - blocks.index(_get_block(name))) for name in names}
    for pattern, rate in settings.rates.items():
        matches = [name for name in names if is_match(name, pattern)]
        if not matches:
            raise ValueError(f"rates: no parameter is called {pattern!r}; there are {', '.join(names)}")
        factors |= dict.fromkeys(matches, float(rate))
    return factors


def set_rates(optimizers: list[Optimizer], schedule: Schedule, step: int, steps: int) -> None:
    """Set the learning rate of every parameter group for this step."""
    factor = schedule.factor(step, steps)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            base = group.setdefault("base_lr", float(group["lr"]))
            rate = base * factor
            group["lr"] = torch.tensor(rate) if isinstance(group["lr"], torch.Tensor) else rate


def get_learning_rate(optimizers: list[Optimizer]) -> dict[str, float]:
    """Return the current learning rate of the first parameter group, for the log."""
    return {"lr": float(optimizers[0].param_groups[0]["lr"])}


def is_match(name: str, pattern: str) -> bool:
    """Return whether a pattern matches the name of a parameter or of a module that contains it.

    The pattern may contain shell-style wildcards. The prefix ``model.`` may be omitted.

    >>> is_match("model.body.conv1.weight", "body.conv1"), is_match("model.fc.weight", "*.bias")
    (True, False)
    """
    short = name.removeprefix("model.")
    return any(fnmatch.fnmatchcase(n, p) for n in (name, short) for p in (pattern, f"{pattern}.*"))


def _get_block(name: str) -> str:
    """Return the name of the block that contains a parameter: the parameter's name without its last two parts."""
    parts = name.split(".")
    return ".".join(parts[:-2]) or parts[0]


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], limit: float) -> Tensor:
    """Multiply all gradients by min(1, limit/‖g‖) and return ‖g‖, the norm of all gradients as one vector.

    For weights sharded over processes, ‖g‖ includes the rows of all processes; one number per process group is communicated.
    Sparse gradients of sampled rows are supported.

    >>> w = torch.nn.Parameter(torch.zeros(2))
    >>> w.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients([w], 1.0), w.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    norms: list[Tensor] = []
    sharded_norms: dict[dist.ProcessGroup, list[Tensor]] = {}
    gradients = [_get_local_gradient(parameter) for parameter in parameters if parameter.grad is not None]
    for gradient, group in gradients:
        norm = torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32))
        norms.append(norm) if group is None else sharded_norms.setdefault(group, []).append(norm)
    for group, local_norms in sharded_norms.items():
        squares = torch.stack(local_norms).square().sum()
        dist.all_reduce(squares, group=group)
        norms.append(squares.sqrt())
    if not norms:
        return torch.tensor(0.0)
    total = torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]))
    factor = (limit / (total + 1e-6)).clamp_max(1.0)
    for gradient, _ in gradients:
        gradient.mul_(factor.to(gradient.device, gradient.dtype))
    return total


def _get_local_gradient(parameter: Tensor) -> tuple[Tensor, dist.ProcessGroup | None]:
    """Return the local values of a gradient, which may be changed in place, and its process group if it is sharded."""
    gradient = parameter.grad
    assert gradient is not None
    group = parameter.device_mesh.get_group() if is_sharded(parameter) else None
    if gradient.layout == torch.sparse_coo:  # sampled rows; coalesce() adds the values of repeated rows
        parameter.grad = gradient = gradient.coalesce()
        return gradient._values(), group
    return get_local(gradient), group
