"""Every knob of a fit, as one tree of plain values and constructor calls; what is left at None is chosen from the data."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from ...config import Call, call
from ...models import sphereface10
from ...objectives import CosFace
from ..config import AugmentCall, HeadCall, ModelCall, OrthogonalCall, RegularizerCall, SamplerCall, Term
from ..schedules import CosineRate
from ..settings import OptimizerCall, ScheduleCall, Settings


@dataclass(frozen=True)
class FitSettings(Settings):
    """How pictures become a recogniser: :class:`Settings`, and what is trained on what.

    Args:
        depth: of a folder, the levels of folders that name an identity.
        root: of a table, the folder its paths are relative to.
        images: of an ``.npz`` or a saved dataset, the array or column of images.
        labels: the array or column of labels.
        on_error: "skip" leaves out pictures that cannot be read; "raise" refuses to train beside them.
        validation: the part of the identities that is never trained on and measured; 0 measures the training ones.
        selection: the part of the training identities that is taken out of training to choose the best weights and the last
            layer; 0 trains on all and keeps the last weights.
        last_layer: "auto" puts a linear discriminant behind the network if the selection identities say it helps.
        least_images: identities with fewer images are left out.
        size: height and width of the network's input, or one number for both.
        channels: 1 for grey, 3 for colour.
        crop: the central so many pixels, or "square", before resizing.
        resize: "stretch", "cover" or "contain".
        mirror: append the features of the mirror image, in measuring and serving.
        memory: decode all pictures once and keep them in memory.
        cache: a folder for a file of decoded pictures, for sets beyond memory.
        workers: threads that decode batches ahead of the step.
        batch_size: of all processes together.
        augment: random changes of training batches, one after the other.
        sampler: another order of samples, such as ClassBalancedSampler for P classes with K samples each.
        backbone: the network up to its features.
        feature_dim: of the features, where the backbone lets it be chosen; for a frozen or foreign one, of a projection
            behind it.
        project: put a trained projection to ``feature_dim`` behind the backbone.
        frozen: keep the backbone as it is and train what is behind it only.
        head_first: so many steps that train the head and the projection only, before the backbone learns too.
        head: the classifier and its loss.
        losses: further objectives beside it.
        energy: a regulariser of the neurons' energy, such as MHE.
        regularizer: another one, such as an orthonormality penalty.
        orthogonal: hidden neurons as rotated fixed ones.
        baselines: measure simple methods, the network before training and pretrained networks beside the trained one.
        watched: at most so many held-out images are measured during training; the report at the end is of all.

    >>> FitSettings(size=(32, 32), validation=0.3).augmentations
    ()
    """

    depth: int | None = None
    root: str | None = None
    images: str | None = None
    labels: str | None = None
    on_error: Literal["raise", "skip"] = "raise"
    validation: float = 0.2
    selection: float = 0.2
    last_layer: Literal["auto", "none"] = "auto"
    least_images: int = 2
    size: tuple[int, ...] | None = None
    channels: int | None = None
    crop: int | Literal["square"] | None = None
    resize: Literal["stretch", "cover", "contain"] = "stretch"
    mirror: bool | None = None
    memory: bool | None = None
    cache: str | None = None
    workers: int | None = None
    batch_size: int = 128
    augment: tuple[AugmentCall, ...] | AugmentCall | None = None
    sampler: SamplerCall | None = None
    backbone: ModelCall = field(default_factory=lambda: call(sphereface10, width=0.25, norm="batch"))
    feature_dim: int = 128
    project: bool | None = None
    frozen: bool = False
    head_first: int = 0
    head: HeadCall = field(default_factory=lambda: call(CosFace))
    losses: tuple[Term, ...] = ()
    energy: RegularizerCall | None = None
    regularizer: RegularizerCall | None = None
    orthogonal: OrthogonalCall | None = None
    baselines: bool = True
    watched: int = 2000
    monitor: str = "-eer"
    optimizer: OptimizerCall = field(
        default_factory=lambda: call(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=2e-3, nesterov=True)
    )
    schedule: ScheduleCall = field(default_factory=lambda: call(CosineRate))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation must lie in [0, 1), got {self.validation!r}")
        if not 0 <= self.selection <= 0.5:
            raise ValueError(f"selection must lie in [0, 0.5], got {self.selection!r}")
        for name, least in (("least_images", 1), ("batch_size", 2), ("feature_dim", 2), ("watched", 4)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be an integer ≥ {least}, got {getattr(self, name)!r}")
        if self.head_first < 0:
            raise ValueError(f"head_first must be an integer ≥ 0, got {self.head_first!r}")
        if self.workers is not None and not 0 <= self.workers <= 256:
            raise ValueError(f"workers must lie in 0 … 256, got {self.workers!r}")
        if self.size is not None and (len(self.size) not in (1, 2) or min(self.size) < 4):
            raise ValueError(f"size must be one number or height and width, each ≥ 4, got {self.size!r}")
        if self.channels not in (None, 1, 3):
            raise ValueError(f"channels must be 1 or 3, got {self.channels!r}")

    @property
    def augmentations(self) -> tuple[Call, ...]:
        """The augmentations in order; none where there are none."""
        given: Any = self.augment
        return (given,) if isinstance(given, Call) else tuple(given or ())

    @property
    def opening(self) -> dict[str, Any]:
        """The options of the source."""
        names = ("depth", "root", "images", "labels")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}
