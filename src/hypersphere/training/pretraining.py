"""Pretrain an embedder on pictures without labels, in one call."""

import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

import torch
from torch import nn

from ..config import Call, Kind, assign, call, encode
from ..data import Affine, ColorJitter, Flip, PicturePreprocessing, ResizedCrop, cache_decoded, check, open_source
from ..files import write_atomically
from ..models import sphereface10
from ..objectives import Uniformity
from .build import (
    FIXED_STATISTICS,
    TaskData,
    build_augmentation,
    build_base_preprocessing,
    build_regularizers,
    complete_backbone,
)
from .fitting.choices import Choice, Chooser, Facts, choose_input, choose_intervals, choose_memory, measure_border
from .fitting.settings import Overrides
from .fitting.splits import sample_pictures
from .optimizers import CosineRate
from .processes import seed_generators
from .settings import BackboneCall, OptimizerCall, ScheduleCall, TaskSettings
from .tasks.pretraining import Pretraining
from .trainer import Progress, Trainer

UniformityCall = Annotated[Call, Kind(nn.Module, ("hypersphere.energy", "hypersphere.objectives"))]
EMBEDDER = "embedder.safetensors"
# Settings of a task that need labels.
UNUSED = ("head", "losses", "mirror", "project_every", "weighted_gradients", "orthogonal", "sampler")
# The default number of steps lets the network see each picture this number of times, within the two limits that follow.
VIEWS_PER_PICTURE = 200
MIN_STEPS = 200
MAX_PICTURES_SEEN = 200_000


@dataclass(frozen=True)
class PretrainSettings(TaskSettings):
    """The settings of ``pretrain``: those of a task, of the source and of the loss. None means chosen from the data.

    ``head``, ``losses`` and other settings that need labels are refused.

    Args:
        depth: for folders, the number of levels that name an identity; labels are not used.
        root: for tables, the folder to which the paths are relative.
        images: for ``.npz`` files and saved datasets, the array or column of images.
        labels: the array or column of labels, which are not used.
        on_error: "skip" leaves out pictures that cannot be read; "raise" refuses to train.
        memory: decode all pictures once and keep them in memory.
        cache: folder for a file of decoded pictures, for sets that do not fit into memory.
        feature_dim: dimension of the features: an argument of the backbone, or a projection after a backbone without it.
        uniformity: loss that spreads the features: an energy such as FeatureEnergy with any kernel, or an objective such as
            Uniformity, KoLeo or GlobalOrthogonalRegularization.
        weight: factor of the uniformity; the alignment has the factor 1.
        teacher: decay of a moving average of the network, whose features of one view are the target for the other view; none
            uses no teacher.

    >>> PretrainSettings(size=16, teacher=0.99).input_size
    (16, 16)
    """

    depth: int | None = None
    root: str | None = None
    images: str | None = None
    labels: str | None = None
    on_error: Literal["raise", "skip"] = "raise"
    memory: bool | None = None
    cache: str | None = None
    feature_dim: int = 128
    uniformity: UniformityCall = field(default_factory=lambda: call(Uniformity))
    weight: float = 1.0
    teacher: float | None = None
    batch_size: int = 256
    monitor: str = "-objective"
    backbone: BackboneCall = field(default_factory=lambda: call(sphereface10, width=0.25, norm="batch"))
    optimizer: OptimizerCall = field(
        default_factory=lambda: call(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
    )
    schedule: ScheduleCall = field(default_factory=lambda: call(CosineRate))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("batch_size", 2), ("feature_dim", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be an integer ≥ {least}, got {getattr(self, name)!r}")
        if self.normalize == "pixel_mean":
            raise ValueError("normalize=pixel_mean cannot be stored in an embedder file: use deviation, unit or faces")


class _Overrides(Overrides):
    """The settings that the user passed to ``pretrain``."""

    def __init__(self, settings: Mapping[str, Any] | Iterable[str] = (), **more: Any):
        super().__init__(settings, **more)
        for key in self.changes:
            if key.partition(".")[0] in UNUSED:
                raise ValueError(
                    f"{key} has no meaning in pretrain, which uses no labels; set it in the fit that follows"
                )

    def apply_to_defaults(self) -> Call:
        """Return the settings before the automatic choices.

        Keys inside ``augment`` and ``schedule`` are left for ``apply``, because these parts are chosen later.
        """

        def is_chosen_later(key: str) -> bool:
            part, dot, _ = key.partition(".")
            return bool(dot) and part in ("augment", "schedule") and part not in self.given

        now = {key: value for key, value in self.changes.items() if not is_chosen_later(key)}
        return assign(Call(PretrainSettings), now)


def pretrain(
    source: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    settings: Mapping[str, Any] | Iterable[str] = (),
    fresh: bool = False,
    progress: Callable[[Trainer], Progress] | None = None,
    say: Callable[[str], None] | None = None,
    **more: Any,
) -> pathlib.Path:
    """Pretrain an embedder on pictures without using their labels, and return its file.

    The loss is the alignment of two augmented views of each picture plus a uniformity energy
    (:class:`~hypersphere.training.tasks.Pretraining`). If it is called again with the same arguments, a stopped run continues and
    gives the same result as a run without a stop. ``fit`` starts from the file with ``weights=FILE``.

    Args:
        source: Pictures: a folder with or without sub-folders, a table, tar shards, an ``.npz`` file, or anything else that
            :func:`~hypersphere.data.open_source` accepts.
        out: Folder of the run. For a name that ends in ``.safetensors``, the embedder is copied to this file, and the run's folder
            has the same name without the ending. The default is ``runs/SOURCE-pretrained``.
        settings: Settings by dotted key, or texts ``"key=value"``; :class:`PretrainSettings` lists them.
        fresh: Delete a run that the folder contains and start over.
        progress: Called with the trainer; returns a function that is called with ``(step, row)`` for every row of the log.
        say: Called with each line about a choice.
        **more: Settings of the first level, such as ``steps=100``.

    Returns:
        The file of the embedder.

    Raises:
        DataError: If the pictures cannot be used.
        ValueError: If a setting is wrong, or the folder holds another run.
        KeyboardInterrupt: If the run is stopped. The same call continues it.

    >>> import tempfile
    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 255, (32, 8, 8), dtype=np.uint8)
    >>> small = {"backbone.width": 0.1, "pictures": False, "threads": 1}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pretrain((images, np.zeros(32, dtype=int)), folder, settings=small, steps=1)
    ...     hs.load(file)(list(images[:3])).shape
    torch.Size([3, 128])
    """
    tell = say if say is not None else (lambda line: None)
    overrides = _Overrides(settings, **more)
    initial = cast(PretrainSettings, overrides.apply_to_defaults().build())
    options = {name: getattr(initial, name) for name in ("depth", "root", "images", "labels")}
    options = {name: value for name, value in options.items() if value is not None}
    opened = open_source(source, identities=1, loose="keep", on_error=initial.on_error, **options)
    folder, copy_to = _choose_folder(out, opened.name)
    summary = check(opened).to_json()
    facts = Facts(
        images=len(opened),
        identities=1,
        per_identity=float(len(opened)),
        all_images=len(opened),
        size=tuple(summary["median_size"]),
        channels=1 if all(size["channels"] == 1 for size in summary["sizes"]) else 3,
        accelerated=torch.accelerator.is_available(),
    )
    chooser = Chooser(overrides.given, overrides.apply_to_defaults())
    choose_input(chooser, facts)
    choose_memory(chooser, facts)
    with_input = cast(PretrainSettings, chooser.tree.build())
    assert with_input.input_size is not None
    assert with_input.channels is not None
    base = build_base_preprocessing(with_input, (with_input.channels, *with_input.input_size))
    dataset: Any = opened.dataset(base)
    if with_input.cache is not None:
        dataset = cache_decoded(dataset, with_input.cache, with_input.workers or 0)
    samples = dataset.in_memory() if with_input.memory else dataset
    pictures = sample_pictures(samples)
    _choose_training(chooser, facts, pictures)
    final = cast(PretrainSettings, overrides.apply(chooser.tree).build())
    for choice in chooser.choices:
        if choice.reason:
            tell(str(Choice(choice.key, choice.value, choice.reason)))
    task = _build_task(final, samples, _set_statistics(final, base, pictures))
    document = {
        "pretrain": encode(final, defaults=True),
        "source": {"source": opened.name, "images": len(opened), "digest": opened.digest()},
    }
    trainer = Trainer(task, folder, final, fresh=fresh, document=document)
    trainer.run(None if progress is None else progress(trainer))
    if trainer.main:
        if trainer.no_embedder is not None:
            raise ValueError(f"{folder} has no embedder: {trainer.no_embedder}")
        if copy_to is not None:
            write_atomically(copy_to, lambda path: shutil.copyfile(folder / EMBEDDER, path))
    trainer.accelerator.wait_for_everyone()
    return folder / EMBEDDER if copy_to is None else copy_to


def _choose_folder(out: str | os.PathLike[str] | None, name: str) -> tuple[pathlib.Path, pathlib.Path | None]:
    """Return the folder of the run, and the file to copy the embedder to."""
    if out is None:
        stem = pathlib.Path(name).stem or "pictures"
        return pathlib.Path("runs") / f"{stem}-pretrained", None
    path = pathlib.Path(out)
    return (path.with_suffix(""), path) if path.suffix == ".safetensors" else (path, None)


def _choose_training(chooser: Chooser, facts: Facts, pictures: torch.Tensor) -> None:
    """Choose views, batches, steps and schedule."""
    height, width = pictures.shape[2:]
    views: tuple[Call, ...] = (call(ResizedCrop, area=(0.3, 1.0)),)
    if facts.channels == 3:
        views += (call(Flip), call(ColorJitter, brightness=0.4, contrast=0.4, saturation=0.4))
        why = "crops, mirror images and colors do not change what a picture shows"
    else:
        shift = round(0.07 * min(height, width), 1)
        views += (call(Affine, rotation=0.2, scale=0.15, shear=0.15, shift=shift, fill=measure_border(pictures)),)
        why = "crops and small moves; gray pictures are not mirrored, because that changes letters and spectra"
    chooser.choose("augment", views, why)
    batch = chooser.choose("batch_size", min(256, max(facts.images // 2, 2)), "256, or half of a small set")
    seen = min(VIEWS_PER_PICTURE * facts.images, MAX_PICTURES_SEEN)
    steps = chooser.choose(
        "steps",
        max(seen // batch, MIN_STEPS),
        f"each of {facts.images} pictures is seen about {seen // facts.images} times",
    )
    choose_intervals(chooser, steps)
    chooser.choose("channels_last", True, "convolutions run faster in this memory layout")


def _set_statistics(
    settings: PretrainSettings, base: PicturePreprocessing, pictures: torch.Tensor
) -> PicturePreprocessing:
    """Return the preprocessing with the normalization of the settings."""
    if settings.normalize in FIXED_STATISTICS:
        return base.with_statistics(*FIXED_STATISTICS[settings.normalize])
    levels = pictures.transpose(0, 1).flatten(1).double() / 255
    return base.with_statistics(tuple(levels.mean(1).tolist()), tuple(levels.std(1).clamp_min(1e-3).tolist()))


def _build_task(settings: PretrainSettings, samples: Any, preprocessing: PicturePreprocessing) -> Pretraining:
    """Return the task. The seed of the settings decides the initial weights of its network."""
    seed_generators(settings.seed)
    sample = preprocessing.normalize(samples.batch(torch.arange(min(2, len(samples))))[0])
    sizes = {"in_channels": preprocessing.channels, "input_size": preprocessing.size, "in_features": sample[0].numel()}
    data = TaskData({"train": samples}, 1, sizes, preprocessing, sample)
    backbone = complete_backbone(settings.backbone, data, settings.feature_dim, None)
    task = Pretraining(
        backbone,
        samples,
        uniformity=settings.uniformity.build(),
        weight=settings.weight,
        teacher=settings.teacher,
        batch_size=settings.batch_size,
        augment=build_augmentation(settings),
        preprocessing=preprocessing,
        seed=settings.seed,
        workers=settings.workers or 0,
    )
    task.regularizers.extend(build_regularizers(settings, task.model))
    return task
