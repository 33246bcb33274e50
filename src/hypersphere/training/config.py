"""What a run is, as one tree of plain values and constructor calls: written to its folder, changed by ``key.path=value``."""

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from torch import nn
from torch.utils.data import Dataset

from .. import models
from ..config import Call, Kind, call, decode_arguments, encode
from ..data import Augmentation, Digits
from ..data.graphs import Nodes
from ..neurons import Classifier
from ..objectives import Softmax
from ..orthogonal import overparameterize
from .selection import Selection
from .settings import Settings
from .tasks import Classification, Task

# What each slot is given when its call is made, by the name of the argument.
OF_TASK = (
    *("model", "head", "train", "measured", "losses", "regularizers", "batch_size", "augment", "scaling", "seed"),
    *("sampler", "workers"),
    *("project_every", "weighted_gradients", "graph", "validation", "threshold_pairs", "measured_pairs"),
)
OF_MODEL = ("num_classes", "in_channels", "input_size", "in_features")
OF_HEAD = ("in_features", "num_classes", "feature_dim")

TaskCall = Annotated[Call, Kind(Task, ("hypersphere.training.tasks",), given=OF_TASK)]
DataCall = Annotated[Call, Kind((Dataset, Nodes), ("hypersphere.data",), given=("train", "background"))]
ModelCall = Annotated[Call, Kind(nn.Module, ("hypersphere.models",), given=OF_MODEL)]
HeadCall = Annotated[Call, Kind(Classifier, ("hypersphere.objectives",), given=OF_HEAD)]
LossCall = Annotated[Call, Kind(nn.Module, ("hypersphere.objectives",), given=OF_HEAD)]
PARTS = ("hypersphere.energy", "hypersphere.orthogonal")
RegularizerCall = Annotated[Call, Kind(nn.Module, PARTS, takes="model", given=("model", "seed"))]
OVER = ("model", "generator")
OrthogonalCall = Annotated[Call, Kind(nn.Module, ("hypersphere.orthogonal",), overparameterize, "model", OVER)]
SamplerCall = Annotated[Call, Kind(object, ("hypersphere.data",), takes="labels", given=("labels",))]
AugmentCall = Annotated[Call, Kind(Augmentation, ("hypersphere.data",))]


@dataclass(frozen=True)
class Images:
    """How images become inputs, in training, evaluation and serving alike.

    Args:
        size: height and width; none keeps those of the dataset.
        channels: 1 or 3 colours; none keeps those of the dataset.
        crop: the central so many pixels, or "square" for the largest central square, before resizing.
        normalize: none leaves pixels in 0 … 255; unit makes them 0 … 1; deviation subtracts the mean of each channel and
            divides by its deviation; pixel_mean subtracts the mean image and divides by 128; faces is (x − 127.5)/128.
        mirror: the embedder appends the features of the mirror image.

    >>> from hypersphere.training import Config, Images
    >>> Config(images=Images(size=16, normalize="unit")).images.size
    16
    """

    size: int | None = None
    channels: int | None = None
    crop: int | Literal["square"] | None = None
    normalize: Literal["none", "unit", "deviation", "pixel_mean", "faces"] = "deviation"
    mirror: bool = False

    def __post_init__(self) -> None:
        if self.size is not None and not 1 <= self.size <= 4096:
            raise ValueError(f"images.size must lie in 1 … 4096, got {self.size}")
        if self.channels not in (None, 1, 3):
            raise ValueError(f"images.channels must be 1, 3 or none, got {self.channels}")
        if isinstance(self.crop, int) and self.crop < 1:
            raise ValueError(f"images.crop must be an integer ≥ 1, square or none, got {self.crop}")

    def replace(self, **changes: Any) -> "Images":
        """A copy with other values."""
        return Images(**{**vars(self), **changes})


@dataclass(frozen=True)
class Term:
    """One more objective of features and labels in the loss, with its weight.

    Args:
        objective: such as CenterLoss.
        weight: of its value in the sum.

    >>> from hypersphere.training import Config, Term, call
    >>> config = Config(losses=(Term(call(hs.objectives.CenterLoss), weight=0.01),))
    >>> config.losses[0].objective.name, config.losses[0].weight
    ('CenterLoss', 0.01)
    """

    objective: LossCall
    weight: float = 1.0


@dataclass(frozen=True)
class Config(Settings):
    """One run: :class:`Settings`, and what is trained on what.

    Args:
        name: of the run.
        task: what is learned and how it is measured.
        data: the dataset, asked for its training part and, where nothing is held out, for its test part (``train=False``).
        samples: which of its samples.
        images: how images become inputs.
        augment: random changes of training batches.
        batch_size: of all processes together.
        sampler: another order of the training samples, such as ClassBalancedSampler for P classes with K samples each.
        workers: threads that read batches ahead of the step.
        model: the network up to its features.
        head: the classifier and its loss.
        losses: further objectives beside it.
        energy: a regulariser of the neurons' energy, such as MHE or CoMHE.
        regularizer: another one, such as an orthonormality or orthogonality penalty.
        orthogonal: hidden neurons as rotated fixed ones.
        project_every: steps between weight projections of operators; 0 for none.
        weighted_gradients: multiply the gradients of operators by the norm of the weight.

    >>> from hypersphere.training import Config, call
    >>> config = Config(steps=200, head=call(hs.objectives.ArcFace, m=0.3), energy=call(hs.energy.MHE))
    >>> config.data.name, config.model.name, config.head.arguments
    ('Digits', 'cnn9', {'m': 0.3})
    >>> config.replace(head__m=0.4, images__size=16).head.arguments
    {'m': 0.4}
    """

    name: str = "run"
    task: TaskCall = field(default_factory=lambda: call(Classification))
    data: DataCall = field(default_factory=lambda: call(Digits))
    samples: Selection = field(default_factory=Selection)
    images: Images = field(default_factory=Images)
    augment: AugmentCall | None = None
    batch_size: int = 128
    sampler: SamplerCall | None = None
    workers: int = 0
    model: ModelCall = field(default_factory=lambda: call(models.cnn9))
    head: HeadCall = field(default_factory=lambda: call(Softmax))
    losses: tuple[Term, ...] = ()
    energy: RegularizerCall | None = None
    regularizer: RegularizerCall | None = None
    orthogonal: OrthogonalCall | None = None
    project_every: int = 0
    weighted_gradients: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.batch_size < 2**31:
            raise ValueError(f"batch_size must be an integer ≥ 1, got {self.batch_size!r}")
        if not 0 <= self.workers <= 256:
            raise ValueError(f"workers must lie in 0 … 256, got {self.workers!r}")
        if self.project_every < 0:
            raise ValueError(f"project_every must be an integer ≥ 0, got {self.project_every!r}")


def to_json(config: Config) -> str:
    """The config as text, every setting written out.

    >>> text = to_json(Config(steps=7))
    >>> json.loads(text)["steps"], json.loads(text)["head"]["call"]
    (7, 'Softmax')
    """
    return json.dumps(encode(config, defaults=True), indent=1) + "\n"


def from_json(text: str, *, trust: bool = False) -> Config:
    """The config that :func:`to_json` wrote; unknown keys and values of another type are a ``ValueError`` that names them.

    Code outside the library that the text names is imported only with ``trust``.

    >>> from_json(to_json(Config(steps=7))).steps
    7
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a config must be JSON: {error}") from error
    return from_document(values, trust=trust)


def from_document(values: Any, *, trust: bool = False) -> Config:
    """The config of a JSON object."""
    config: Config = Call(Config, decode_arguments(Config, values, trust=trust)).build()
    return config


def replace(config: Config, **changes: Any) -> Config:
    """A copy with settings changed, nested ones by ``part__argument``.

    >>> replace(Config(), steps=10, optimizer__lr=0.5, images__size=16).images.size
    16
    """
    changed: Config = config.replace(**changes)
    return changed
