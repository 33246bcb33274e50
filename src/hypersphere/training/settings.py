"""The settings of a run as one tree of plain values and constructor calls, changed by ``key.path=value``.

:class:`Settings` are those of the trainer. :class:`TaskSettings` adds the network, its losses and its inputs. A recipe returns
a :class:`Config`, which adds a task and a dataset; ``fit`` uses :class:`~hypersphere.training.FitSettings`, which adds the
choice of identities.
"""

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset

from .. import models
from ..config import Call, Kind, as_call, assign, call, decode_arguments, encode, parameters
from ..config.signatures import get_kind
from ..data import Augmentation, Digits
from ..data.graphs import Nodes
from ..neurons import Classifier
from ..objectives import Softmax
from ..orthogonal import OGD, overparameterize
from .optimizers import Schedule, StepRate
from .selection import Selection
from .tasks import Classification, Task

OptimizerCall = Annotated[
    # In the order of name resolution, so that a name such as Muon means the same class in a file and on the command line.
    Call,
    Kind(Optimizer, ("hypersphere.objectives", "hypersphere.orthogonal", "torch.optim"), given=("params",)),
]
ScheduleCall = Annotated[Call, Kind(Schedule, ("hypersphere.training",))]

# Arguments that `assemble_task` passes when it builds the task, the backbone or the head. Settings cannot set them.
OF_TASK = (
    *("model", "head", "train", "measured", "losses", "regularizers", "batch_size", "augment", "preprocessing", "seed"),
    *("sampler", "workers", "frozen", "head_first", "facts", "mirror"),
    *("project_every", "weighted_gradients", "graph", "validation", "threshold_pairs", "measured_pairs"),
)
OF_BACKBONE = ("num_classes", "in_channels", "input_size", "in_features", "vocabulary")
OF_HEAD = ("in_features", "num_classes", "feature_dim")
TaskCall = Annotated[Call, Kind(Task, ("hypersphere.training.tasks",), given=OF_TASK)]
DataCall = Annotated[Call, Kind((Dataset, Nodes), ("hypersphere.data",), given=("train", "background"))]
BackboneCall = Annotated[Call, Kind(nn.Module, ("hypersphere.models",), given=OF_BACKBONE)]
HeadCall = Annotated[Call, Kind(Classifier, ("hypersphere.objectives",), takes="num_classes", given=OF_HEAD)]
LossCall = Annotated[Call, Kind(nn.Module, ("hypersphere.objectives", "hypersphere.energy"), given=OF_HEAD)]


@runtime_checkable
class ModelRegularizer(Protocol):
    """A regularizer of a network, whose terms are added to the loss of the task."""

    def terms(self, labels: Tensor | None = None) -> Mapping[str, Tensor]:
        """Return the weighted terms by name."""


EnergyCall = Annotated[
    Call,
    Kind(ModelRegularizer, ("hypersphere.energy", "hypersphere.orthogonal"), takes="model", given=("model", "seed")),
]
# Only functions with an argument `classifier` are accepted. They prepare a plain network and must know its output layer. Functions
# that change a prepared network, such as merge, do not have this argument.
OrthogonalCall = Annotated[
    Call, Kind(nn.Module, ("hypersphere.orthogonal",), overparameterize, "classifier", ("model", "generator"))
]
SamplerCall = Annotated[Call, Kind(object, ("hypersphere.data",), takes="labels", given=("labels",))]
AugmentCall = Annotated[Call, Kind(Augmentation, ("hypersphere.data",))]
Self = TypeVar("Self", bound="Settings")


# Hints for keys that other tools use.
_DEVICE = "the device is chosen automatically: a GPU if there is one; hide it with CUDA_VISIBLE_DEVICES= to use the CPU"
HINTS = {
    **dict.fromkeys(("batch", "batchsize", "bs"), "write batch_size=…"),
    **dict.fromkeys(("lr", "learning_rate", "rate"), "the learning rate is optimizer.lr=…"),
    **dict.fromkeys(
        ("weight_decay", "wd", "momentum"), "the optimizer's arguments are optimizer.weight_decay=… and so on"
    ),
    **dict.fromkeys(("epochs", "epoch", "num_epochs"), "training is counted in optimizer steps: steps=…"),
    **dict.fromkeys(("device", "gpu", "cuda", "cpu"), _DEVICE),
    **dict.fromkeys(("model", "network", "arch", "architecture"), "write backbone=…"),
    **dict.fromkeys(
        ("loss", "margin", "scale", "m", "s"), "the loss and its margin are head=… and arguments such as head.m=…"
    ),
    **dict.fromkeys(("image_size", "img_size", "input_size", "resolution"), "write size=…"),
    "regularizer": "write energy=…",
}


@dataclass(frozen=True)
class Settings:
    """Settings of :class:`~hypersphere.training.Trainer` for every task.

    Args:
        steps: optimizer steps.
        seed: seed of initial weights, batches, augmentation and sampling.
        evaluate_every, log_every, checkpoint_every: steps between evaluations, rows of the log, checkpoints.
        keep: number of newest checkpoints to keep.
        monitor: metric whose largest value marks the best checkpoint; ``-name`` for the smallest value.
        patience: number of evaluations without a new best after which training stops early; none never stops.
        keep_best: end with the weights of the best evaluation instead of the last ones.
        precision: arithmetic of the network: no (float32), bf16 or fp16.
        accumulate: number of batches whose gradients are added before a step.
        clip: largest norm of the gradient.
        ema: decay of an exponential moving average of the weights, which is evaluated and saved.
        average: number of newest checkpoints whose weights are averaged at the end.
        compile: compile the network with torch.compile.
        gradient_checkpointing: recompute blocks in the backward pass instead of storing their activations.
        channels_last: memory layout with the channels last, faster for most convolutions.
        threads: CPU threads; 0 keeps torch's choice. Runs with the same number are equal bit for bit.
        energy_s, energy_half_space: exponent s and space of the energies that are logged for each layer.
        timeout: seconds to wait for other processes; must be longer than any work that one process does alone.
        pictures: draw charts and write the samples of the report page at the end.
        trackers: experiment trackers of accelerate, such as wandb or mlflow, that receive every row of the log.
        optimizer: optimizer of all parameters except rotations.
        rotations: optimizer of rotations on the orthogonal group (method ogd).
        schedule: the learning rate over time.
        freeze: names or patterns of parameters to keep fixed.
        rates: factors of the learning rate by pattern of parameter names; the last matching pattern is used.
        layer_decay: factor of the learning rate from each block to the block before it, below 1 for fine-tuning.
        scale_generators: divide the learning rate of rotations in fine-tuning by √(entries of a generator), so that one rate
            suits every block size.
        weights: initial weights: a run folder, a safetensors file, or a state_dict that contains no code.

    >>> Settings(steps=200, seed=1, optimizer=call(torch.optim.Adam, lr=1e-3)).steps
    200
    """

    HINTS: ClassVar[Mapping[str, str]] = HINTS
    MIN_STEPS: ClassVar[int] = 1

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
    energy_s: float = 2.0
    energy_half_space: bool = False
    timeout: int = 600
    pictures: bool = True
    trackers: tuple[str, ...] = ()
    optimizer: OptimizerCall | Callable[..., Any] | Optimizer = field(
        default_factory=lambda: call(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=5e-4)
    )
    rotations: OptimizerCall = field(default_factory=lambda: call(OGD, reproject_every=100))
    schedule: ScheduleCall = field(default_factory=lambda: call(StepRate))
    freeze: tuple[str, ...] = ()
    rates: Mapping[str, float] = field(default_factory=dict)
    layer_decay: float | None = None
    scale_generators: bool = False
    weights: str | None = None

    def __post_init__(self) -> None:
        for name, parameter in parameters(cast(Any, type(self))).items():
            value = getattr(self, name)
            if get_kind(parameter.annotation) is not None and isinstance(value, type | functools.partial):
                object.__setattr__(self, name, as_call(value))
        _check(self, "steps", self.MIN_STEPS)
        for name in ("evaluate_every", "log_every", "checkpoint_every", "timeout"):
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
        if not (math.isfinite(self.energy_s) and self.energy_s >= 0):
            raise ValueError(f"energy_s must be a finite number ≥ 0, got {self.energy_s!r}")
        if self.clip is not None and not (math.isfinite(self.clip) and self.clip > 0):
            raise ValueError(f"clip must be a number > 0 or none, got {self.clip!r}")
        for name in ("ema", "layer_decay"):
            value = getattr(self, name)
            if value is not None and not (0 < value < 1 or (name == "layer_decay" and value == 1)):
                raise ValueError(f"{name} must lie in (0, 1) or be none, got {value!r}")
        if self.precision not in ("no", "bf16", "fp16"):
            raise ValueError(f"precision must be no, bf16 or fp16, got {self.precision!r}")
        for pattern, rate in self.rates.items():
            if not (isinstance(rate, int | float) and math.isfinite(rate) and rate >= 0):
                raise ValueError(f"rates must be numbers ≥ 0, got {rate!r} for {pattern!r}")
        for part in (self.optimizer, self.rotations):
            if isinstance(part, Call):
                _check_rates(part)

    def replace(self: Self, changes: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """Return a copy with settings changed, nested ones by dotted keys.

        Args:
            changes: Python values by key, with the keys of the command line.
            **more: Settings of the first level.

        Raises:
            ValueError: If a key is unknown or a value is not accepted.

        >>> Settings().replace({"optimizer.lr": 0.5}, steps=10).optimizer.arguments["lr"]
        0.5
        """
        changed: Self = assign(as_call(self), {**(changes or {}), **more}).build()
        return changed


@dataclass(frozen=True)
class Term:
    """Another objective of features and labels in the loss, with its weight.

    Args:
        objective: the objective, such as CenterLoss.
        weight: the factor of its value in the sum.

    >>> from hypersphere.training import Config, Term, call
    >>> config = Config(losses=(Term(call(hs.objectives.CenterLoss), weight=0.01),))
    >>> config.losses[0].objective.name, config.losses[0].weight
    ('CenterLoss', 0.01)
    """

    objective: LossCall
    weight: float = 1.0


@dataclass(frozen=True)
class TaskSettings(Settings):
    """:class:`Settings`, and the network with its losses and inputs.

    Args:
        size: height and width of the network's input, or one number for both; none keeps the size of the data.
        channels: 1 for gray, 3 for color; none keeps those of the data.
        crop: side of the central square to cut out before resizing, or "square" for the largest one.
        resize: "stretch" to the size, "cover" it and cut off the rest, or "contain" the whole picture with borders.
        normalize: scaling of pixels. none keeps 0 … 255; unit scales to 0 … 1; deviation subtracts the mean of each channel and
            divides by its standard deviation; pixel_mean subtracts the mean image and divides by 128; faces computes
            (x − 127.5)/128.
        mirror: append the features of the mirror image, in evaluation and in the embedder file.
        augment: random changes of training batches, applied in order.
        batch_size: samples per batch, of all processes together.
        sampler: another order of the training samples, such as ClassBalancedSampler for P classes with K samples each.
        workers: threads that read the next batches during a step.
        backbone: the network up to its features.
        head: the classifier and its loss.
        losses: further objectives of features and labels.
        energy: regularizers of the neurons, such as MHE, CoMHE or an orthogonality penalty.
        orthogonal: train hidden neurons as rotations of fixed neurons, or in another orthogonal parametrization.
        project_every: steps between weight projections of operators; 0 for none.
        weighted_gradients: multiply the gradients of operators by the norm of the weight.

    >>> from hypersphere.training import TaskSettings
    >>> TaskSettings(size=16, energy=call(hs.MHE)).input_size
    (16, 16)
    """

    size: int | tuple[int, ...] | None = None
    channels: int | None = None
    crop: int | Literal["square"] | None = None
    resize: Literal["stretch", "cover", "contain"] = "stretch"
    normalize: Literal["none", "unit", "deviation", "pixel_mean", "faces"] = "deviation"
    mirror: bool | None = False
    augment: tuple[AugmentCall, ...] | AugmentCall | None = None
    batch_size: int = 128
    sampler: SamplerCall | None = None
    workers: int | None = 0
    backbone: BackboneCall = field(default_factory=lambda: call(models.cnn9))
    head: HeadCall = field(default_factory=lambda: call(Softmax))
    losses: tuple[Term, ...] = ()
    energy: tuple[EnergyCall, ...] | EnergyCall | None = None
    orthogonal: OrthogonalCall | None = None
    project_every: int = 0
    weighted_gradients: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.input_size
        if size is not None and not all(1 <= side <= 4096 for side in size):
            raise ValueError(f"size must be one number or height and width, each in 1 … 4096, got {self.size!r}")
        if self.channels not in (None, 1, 3):
            raise ValueError(f"channels must be 1, 3 or none, got {self.channels!r}")
        if isinstance(self.crop, int) and self.crop < 1:
            raise ValueError(f"crop must be an integer ≥ 1, square or none, got {self.crop}")
        _check(self, "batch_size", 1)
        if self.workers is not None:
            _check(self, "workers", 0, 256)
        if self.project_every < 0:
            raise ValueError(f"project_every must be an integer ≥ 0, got {self.project_every!r}")

    @property
    def input_size(self) -> tuple[int, int] | None:
        """Height and width of the network's input, or None if the data decides."""
        if self.size is None or isinstance(self.size, int):
            return None if self.size is None else (self.size, self.size)
        if len(self.size) not in (1, 2):
            raise ValueError(f"size must be one number or height and width, got {self.size!r}")
        return self.size[0], self.size[-1]

    @property
    def augmentations(self) -> tuple[Call, ...]:
        """The augmentations in order."""
        return _as_tuple(self.augment)

    @property
    def energies(self) -> tuple[Call, ...]:
        """The regularizers in order."""
        return _as_tuple(self.energy)


@dataclass(frozen=True)
class Config(TaskSettings):
    """The settings of a run on a dataset that has a name: :class:`TaskSettings`, the task and the data.

    Args:
        name: the name of the run.
        task: the task: what is learned and how it is measured.
        data: the dataset. Its test set is measured, or validation samples if ``samples.validation`` is set.
        samples: selection of its samples.

    >>> from hypersphere.training import Config, call
    >>> config = Config(steps=200, head=call(hs.objectives.ArcFace, m=0.3), energy=call(hs.energy.MHE))
    >>> config.data.name, config.backbone.name, config.head.arguments
    ('Digits', 'cnn9', {'m': 0.3})
    >>> config.replace({"head.m": 0.4}, size=16).head.arguments
    {'m': 0.4}
    """

    name: str = "run"
    task: TaskCall = field(default_factory=lambda: call(Classification))
    data: DataCall = field(default_factory=lambda: call(Digits))
    samples: Selection = field(default_factory=Selection)


def _as_tuple(value: Any) -> tuple[Call, ...]:
    return () if value is None else (value,) if isinstance(value, Call) else tuple(value)


def to_json(config: Config) -> str:
    """Return the settings as JSON text, every one written out.

    >>> text = to_json(Config(steps=7))
    >>> json.loads(text)["steps"], json.loads(text)["head"]["call"]
    (7, 'Softmax')
    """
    return json.dumps(encode(config, defaults=True), indent=1) + "\n"


def from_json(text: str, *, trust: bool = False) -> Config:
    """Return the settings that :func:`to_json` wrote.

    Args:
        text: JSON.
        trust: Import code outside the library that the text names.

    Raises:
        ValueError: If it is not JSON, or a key or value is not accepted.

    >>> from_json(to_json(Config(steps=7))).steps
    7
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a config must be JSON: {error}") from error
    return from_document(values, trust=trust)


def from_document(values: Any, *, trust: bool = False) -> Config:
    """Return the settings of a JSON object."""
    config: Config = Call(Config, decode_arguments(Config, values, trust=trust)).build()
    return config


def replace(config: Self, changes: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
    """Return ``config.replace(changes, **more)``.

    >>> replace(Config(), {"optimizer.lr": 0.5}, steps=10, size=16).size
    16
    """
    return config.replace(changes, **more)


def _check(settings: Settings, name: str, least: int, most: int | None = None) -> None:
    value = getattr(settings, name)
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not least <= value <= (2**53 - 1 if most is None else most)
    ):
        accepted = f"be an integer ≥ {least}" if most is None else f"lie in {least} … {most}"
        raise ValueError(f"{name} must {accepted}, got {value!r}")


def _check_rates(optimizer: Call) -> None:
    """Check numbers that torch does not check: NaN passes the comparisons in its optimizers."""
    for name in ("lr", "momentum", "weight_decay", "dampening", "eps", "alpha", "rho"):
        value = optimizer.arguments.get(name)
        if isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"optimizer.{name} must be a finite number ≥ 0, got {value!r}")
