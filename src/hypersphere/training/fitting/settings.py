"""The settings of ``fit``, and the overrides of a user, which are applied to the automatic choices."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import torch

from ...config import Call, Kind, as_call, assign, call
from ...data import Preprocessing
from ...models import sphereface10
from ...objectives import CosFace
from ..optimizers import CosineRate
from ..settings import OF_BACKBONE, HeadCall, OptimizerCall, ScheduleCall, TaskSettings
from .backbones import MODELS, find_backbone
from .sample_network import SampleNetwork

BackboneCall = Annotated[Call, Kind(SampleNetwork, MODELS, given=OF_BACKBONE)]
PreprocessingCall = Annotated[Call, Kind(Preprocessing, ("hypersphere.data",))]
SOURCE_OPTIONS = ("depth", "root", "images", "labels")


@dataclass(frozen=True)
class FitSettings(TaskSettings):
    """The settings of ``fit``: those of :class:`TaskSettings` and more. None means that the value is chosen from the data.

    Args:
        depth: folders: number of levels that name an identity.
        root: tables: folder to which the paths are relative.
        images: ``.npz`` and saved datasets: array or column of images.
        labels: array or column of labels.
        on_error: "skip" leaves out pictures that cannot be read; "raise" refuses to train.
        validation: share of the identities that are left out of training and measured in the report; 0 measures the training
            identities.
        selection: share of the training identities that are taken out of training to choose the best weights and the last
            layer; 0 trains on all and keeps the last weights.
        last_layer: "auto" appends a linear discriminant to the network if it lowers the EER of the selection identities.
        networks: number of networks that are trained one after the other with different seeds; their features are joined. The
            second and later ones are trained on the selection identities too.
        least_images: identities with fewer pictures are left out.
        start: pretrained embedder to start from: a name that ``hypersphere models`` lists, such as sface or ge2e, the folder
            of a run, or an embedder file. Its network and its preprocessing are used.
        accept_licence: name of a pretrained model whose license is not permissive, to accept that license.
        tune: how much of the pretrained network is trained: nothing ("frozen"), its last layers ("last"), orthogonal rotations
            of all layers ("oft") or everything ("full"); none chooses by the number of training samples.
        preprocessing: how samples become inputs, such as AudioPreprocessing for recordings; for pictures, set size, channels,
            crop, resize and normalize instead.
        mirror: append the features of the mirror image, in the report and in the embedder.
        memory: decode all pictures once and keep them in memory.
        cache: folder for a file of decoded pictures, for sets beyond memory.
        workers: threads that decode batches ahead of the step.
        feature_dim: dimension of the features, if the backbone lets it be chosen; otherwise of a projection behind it.
        project: append a trained projection to ``feature_dim`` to the backbone.
        frozen: keep the backbone as it is and train only the layers behind it.
        head_first: number of first steps that train only the head and the projection.
        baselines: compare the trained network with simple methods, the network before training and pretrained networks.
        watched: at most this many pictures are measured during training; the report at the end uses all.

    >>> FitSettings(size=(32, 32), validation=0.3).input_size
    (32, 32)
    """

    MIN_STEPS: ClassVar[int] = 0  # a pretrained network may stay as it is
    CHOSEN: ClassVar[frozenset[str]] = frozenset(
        """
        augment backbone batch_size channels channels_last checkpoint_every compile ema evaluate_every head keep_best
        log_every memory mirror networks optimizer patience precision preprocessing sampler schedule size steps tune workers
        """.split()  # noqa: SIM905
    )
    """Keys whose values are chosen from the data unless the user sets them."""

    depth: int | None = None
    root: str | None = None
    images: str | None = None
    labels: str | None = None
    on_error: Literal["raise", "skip"] = "raise"
    validation: float = 0.2
    selection: float = 0.2
    last_layer: Literal["auto", "none"] = "auto"
    networks: int | None = None
    least_images: int = 2
    start: str | None = None
    accept_licence: str | None = None
    tune: Literal["frozen", "last", "oft", "full"] | None = None
    preprocessing: PreprocessingCall | None = None
    mirror: bool | None = None
    memory: bool | None = None
    cache: str | None = None
    workers: int | None = None
    backbone: BackboneCall = field(default_factory=lambda: call(sphereface10, width=0.25, norm="batch"))
    feature_dim: int = 128
    project: bool | None = None
    frozen: bool = False
    head_first: int = 0
    head: HeadCall = field(default_factory=lambda: call(CosFace))
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
        if self.networks is not None and self.networks < 1:
            raise ValueError(f"networks must be an integer ≥ 1, got {self.networks!r}")
        if self.start is not None and (self.networks or 1) > 1:
            raise ValueError("networks must be 1 with start: a pretrained network is the same for every seed")
        if self.start is not None and self.weights is not None:
            raise ValueError("start and weights must not both be given: start takes network and preprocessing as well")
        if self.start is None and self.tune is not None:
            raise ValueError(f"tune={self.tune} needs a pretrained network: start=NAME (--from NAME)")
        if self.start is not None and self.preprocessing is not None:
            raise ValueError("preprocessing must not be given with start, which brings its own")
        if self.head_first < 0:
            raise ValueError(f"head_first must be an integer ≥ 0, got {self.head_first!r}")
        if self.input_size is not None and min(self.input_size) < 4:
            raise ValueError(f"size must be one number or height and width, each ≥ 4, got {self.size!r}")
        if self.normalize == "pixel_mean":
            raise ValueError("normalize=pixel_mean cannot be stored in an embedder file: use deviation, unit or faces")

    @property
    def source_options(self) -> dict[str, Any]:
        """The options of :func:`~hypersphere.data.open_source` that are set."""
        return {name: getattr(self, name) for name in SOURCE_OPTIONS if getattr(self, name) is not None}


class Overrides:
    """The settings that a user gave, by dotted key.

    Args:
        settings: Python values by key, or texts ``key=value``.
        **more: Further settings of the first level.

    Raises:
        ValueError: If a text is not of this form, or ``backbone`` does not name a network.

    Attributes:
        changes: Values by key.
        given: The keys that are set as a whole, such as ``head``, in contrast to ``head.m``.
        model_folder: The folder of a model of ``transformers``, if ``backbone`` names one.

    >>> overrides = Overrides(["head.m=0.3", "size=32"])
    >>> sorted(overrides.given), overrides.reaches_into("head")
    (['size'], True)
    """

    def __init__(self, settings: Mapping[str, Any] | Iterable[str] = (), **more: Any):
        self.changes = {**(settings if isinstance(settings, Mapping) else _split_texts(settings)), **more}
        self.model_folder: str | None = None
        backbone = self.changes.get("backbone")
        if isinstance(backbone, str | os.PathLike):
            name = os.fspath(backbone)
            self.changes["backbone"] = find_backbone(name)
            self.model_folder = name if os.path.exists(name) else None
        elif backbone is not None:
            self.changes["backbone"] = as_call(backbone)
        self.given = frozenset(key for key in self.changes if "." not in key)

    def apply(self, tree: Call) -> Call:
        """Return the tree with all overrides.

        Raises:
            ValueError: If a key is unknown or a value is not accepted. The message names the key.
        """
        return assign(tree, self.changes)

    def apply_to_defaults(self) -> Call:
        """Return the settings before anything is chosen from the data.

        A key inside the augmentation, such as ``augment.0.rotation``, is left for :meth:`apply`, because there is no default
        augmentation to change.
        """
        changes = self.changes
        if "augment" not in self.given:
            changes = {key: value for key, value in changes.items() if not key.startswith("augment.")}
        return assign(Call(FitSettings), changes)

    def apply_to_part(self, key: str, value: Call) -> Call:
        """Return an automatic value of one key with the overrides of its arguments.

        >>> from hypersphere.data import AudioPreprocessing
        >>> Overrides(["preprocessing.frames=100"]).apply_to_part("preprocessing", call(AudioPreprocessing)).arguments
        {'frames': 100}
        """
        changes = {name: change for name, change in self.changes.items() if name.partition(".")[0] == key}
        changed: Call = assign(Call(FitSettings, {key: value}), changes).get(key)
        return changed

    def reaches_into(self, key: str) -> bool:
        """Return whether an override changes an argument inside a key, such as ``head.m`` for ``head``."""
        return any(name.startswith(f"{key}.") for name in self.changes)


def _split_texts(texts: Iterable[str]) -> dict[str, Any]:
    """Return settings by key; a later text replaces an earlier one of the same key."""
    settings: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ValueError(f"settings are changed by KEY=VALUE, got {text!r}")
        settings.pop(key, None)
        settings[key] = value
    return settings
