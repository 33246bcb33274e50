"""Build a task from settings: the data, the network with its head, and the regularizers."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ..config import Call, encode, parameters
from ..data import Compose, InMemory, OfClasses, PicturePreprocessing, data_roots
from ..data.graphs import Nodes
from ..models import Projected
from ..models.network import find_feature_dim
from .datasets import MeanImage, Normalizer, as_samples, resize_samples, with_statistics
from .selection import (
    hold_out,
    limit_measured_samples,
    materialize,
    select_first_classes,
    select_training_samples,
)
from .settings import Config, TaskSettings
from .tasks import Classification, Faces, FewShotRecognition, Graph, Task
from .tasks.classification import attach_head
from .tasks.faces import split_fold
from .weights import start_from

# Mean and standard deviation of pixels in [0, 1] for the values of `normalize` that do not depend on the data.
FIXED_STATISTICS = {"none": (0.0, 1 / 255), "unit": (0.0, 1.0), "faces": (127.5 / 255, 128 / 255)}


class TaskData(NamedTuple):
    """The data of a task.

    Attributes:
        arguments: Arguments of the task that come from the data: ``train``, ``measured``, and for some tasks pairs or a graph.
        classes: The number of classes to train on.
        sizes: Sizes of the input by argument of the network: ``in_channels``, ``input_size``, ``in_features``, ``vocabulary``.
        preprocessing: Converts stored samples to inputs; None if the samples are inputs.
        sample: One or more inputs, to measure the dimension of the features; None for a graph.
    """

    arguments: Mapping[str, Any]
    classes: int
    sizes: Mapping[str, Any]
    preprocessing: Normalizer | None = None
    sample: Tensor | None = None


def build_task(config: Config) -> Task:
    """Return the task that the settings describe.

    The initial weights depend on the random state of torch, so seed it first.

    Args:
        config: All settings of a run.

    Raises:
        ValueError: If the data is missing or the parts do not fit together.

    >>> from hypersphere.training import Config, build_task, call
    >>> task = build_task(Config(backbone=call(hs.models.mlp, width=0.05), head=call(hs.objectives.ArcFace)))
    >>> type(task).__name__, len(task.train_samples), task.model.classifier.num_classes
    ('Classification', 1442, 10)
    >>> loss, parts = task(0, *next(iter(task.loader)))  # of the first batch
    >>> loss.shape, list(parts)
    (torch.Size([]), ['objective'])
    """
    loaded: dict[str, list[str]] = {}

    def load(network: nn.Module) -> None:
        loaded.update(start_from(network, cast(str, config.weights)))

    # Orthogonal training keeps the weights as fixed neurons, so they are loaded before the layers get a rotation. In all other
    # cases the trainer loads them.
    loads_here = config.weights is not None and config.orthogonal is not None
    task = assemble_task(config, config.task, read_data(config), load=load if loads_here else None)
    task.started = loaded
    return task


def assemble_task(
    settings: TaskSettings,
    task: Call,
    data: TaskData,
    *,
    feature_size: int | None = None,
    project: bool | None = False,
    load: Callable[[nn.Module], None] | None = None,
) -> Task:
    """Return a task on the given data, with its backbone, head, orthogonal training, losses and regularizers.

    Args:
        settings: The settings of the parts.
        task: The call of the task.
        data: Samples, preprocessing and sizes.
        feature_size: The dimension of the features, if the backbone has an argument for it or is followed by a projection.
        project: Append a trained projection to ``feature_size`` dimensions. None appends it if the backbone has no argument
            ``feature_dim``.
        load: Called with the new network before its head is built, to load weights.

    Raises:
        ValueError: If the parts do not fit together.
    """
    backbone = complete_backbone(settings.backbone, data, feature_size, project)
    body = cast(nn.Module, backbone.build())
    if load is not None:
        load(body)
    context = {
        **data.arguments,
        "preprocessing": data.preprocessing,
        "augment": build_augmentation(settings),
        "sampler": None
        if settings.sampler is None
        else settings.sampler.build(labels=as_samples(data.arguments["train"]).labels),
        "seed": settings.seed,
        "batch_size": settings.batch_size,
        "workers": settings.workers or 0,
    }
    if not issubclass(cast(type, task.target), Classification):
        return cast(Task, task.build(model=body, regularizers=build_regularizers(settings, body), **context))
    dim = int(body.feature_dim) if data.sample is None else find_feature_dim(body, data.sample)  # type: ignore[arg-type]
    sizes = {"in_features": dim, "num_classes": data.classes, "feature_dim": dim}
    head = settings.head.build(**{name: sizes[name] for name in ("in_features", "num_classes")})
    model = attach_head(body, head)
    if settings.orthogonal is not None:
        settings.orthogonal.build(model=model, generator=torch.Generator().manual_seed(settings.seed))
    built = task.build(
        model=model,
        head=head,
        losses=[(term.weight, term.objective.build(**sizes)) for term in settings.losses],
        regularizers=build_regularizers(settings, model),
        project_every=settings.project_every,
        weighted_gradients=settings.weighted_gradients,
        **context,
    )
    built.network_call = backbone
    return cast(Task, built)


def read_data(config: Config) -> TaskData:
    """Read, select and resize the data of a task.

    Raises:
        ValueError: If a file is missing or a setting does not fit the data.
    """
    if isinstance(config.task.target, type) and issubclass(config.task.target, Graph):
        graph = config.data.build()
        if not isinstance(graph, Nodes):
            raise ValueError(f"data must be a graph for the task Graph, such as Planetoid, got {config.data.name}")
        arguments = {"graph": graph, "validation": config.samples.validation > 0}
        return TaskData(arguments, len(graph.classes), {"in_features": graph.data.shape[1]})
    arguments = _read_samples(config, config.task.target)
    train = as_samples(arguments["train"])
    # Measured samples have the input size of the network; training pictures may be larger, for random crops.
    sample = as_samples(arguments["measured"]).batch(torch.arange(1))[0]
    sizes: dict[str, Any] = {"in_features": sample[0].numel(), "vocabulary": len(train.classes)}
    normalizer = None
    if sample.ndim == 4:
        sizes |= {"in_channels": sample.shape[1], "input_size": (int(sample.shape[2]), int(sample.shape[3]))}
        if not sample.is_floating_point():
            base = build_base_preprocessing(config, tuple(sample.shape[1:]))
            normalizer = choose_normalizer(config.normalize, base, arguments["train"])
    inputs = sample if normalizer is None else normalizer.normalize(sample)
    inputs = inputs.transpose(1, 2) if inputs.ndim == 3 and inputs.shape[-1] == 3 else inputs  # clouds of points
    return TaskData(arguments, len(train.classes), sizes, normalizer, inputs)


def choose_normalizer(name: str, base: PicturePreprocessing, train: Any) -> Normalizer:
    """Return the preprocessing with the named normalization, whose statistics are computed from the training samples."""
    if name == "pixel_mean":
        return cast(MeanImage, MeanImage.of(train, pixelwise=True, scale=128.0))
    if name == "deviation":
        return with_statistics(base, as_samples(train))
    return base.with_statistics(*FIXED_STATISTICS[name])


def build_base_preprocessing(settings: TaskSettings, shape: tuple[int, ...]) -> PicturePreprocessing:
    """Return the preprocessing of pictures with ``shape`` (channels, height, width), without their statistics."""
    return PicturePreprocessing(
        size=(shape[1], shape[2]) if settings.input_size is None else settings.input_size,
        channels=shape[0] if settings.channels is None else settings.channels,
        mean=0.0,
        std=1.0,
        mirror=bool(settings.mirror),
        crop=settings.crop,
        resize=settings.resize,
    )


def build_augmentation(settings: TaskSettings) -> Any:
    """Return the augmentations of the settings as one, or None if there are none."""
    steps = [step.build() for step in settings.augmentations]
    return Compose(*steps) if len(steps) > 1 else steps[0] if steps else None


def build_regularizers(settings: TaskSettings, model: nn.Module) -> list[nn.Module]:
    """Return the regularizers of the settings for a network."""
    regularized = getattr(model, "discriminator", model)  # a GAN regularizes its discriminator
    return [part.build(model=regularized, seed=settings.seed) for part in settings.energies]


def complete_backbone(backbone: Call, data: TaskData, dim: int | None, project: bool | None) -> Call:
    """Return the call of the backbone with all sizes from the data, so that it can be built again without the data."""
    accepted = parameters(backbone.target)
    sizes = {**data.sizes, "num_classes": None} | ({} if dim is None else {"feature_dim": dim})
    added = {name: value for name, value in sizes.items() if name in accepted and name not in backbone.arguments}
    complete = Call(backbone.target, {**backbone.arguments, **added})
    if not (project or (project is None and "feature_dim" not in accepted)):
        return complete
    assert data.sample is not None
    with torch.random.fork_rng():
        in_features = find_feature_dim(cast(nn.Module, complete.build()), data.sample)
    return Call(Projected, {"network": complete, "in_features": in_features, "feature_dim": dim})


def _read_samples(config: Config, kind: Any) -> dict[str, Any]:
    """Return the training and the measured samples, resized according to the settings."""
    if issubclass(kind, Faces):
        data = split_fold(read_dataset(config, None), config.task.get("fold"), config.samples.validation > 0)
        return {**data, **{part: _resize_to_input(config, data[part]) for part in ("train", "measured")}}
    if issubclass(kind, FewShotRecognition):
        train, measured = _split_few_shot(config)
    else:
        whole = select_first_classes(config.samples, read_dataset(config, True))
        train, measured = hold_out(config.samples, whole, kind.measures_unseen_classes)
        if measured is None:
            measured = select_first_classes(config.samples, read_dataset(config, False))
    train = select_training_samples(config.samples, _resize_to_input(config, train))
    return {"train": train, "measured": limit_measured_samples(config.samples, _resize_to_input(config, measured))}


def _split_few_shot(config: Config) -> tuple[Any, Any]:
    """Split by class: use the splits of the dataset if they share no class, otherwise split by class number."""
    whole, validates = read_dataset(config, True), config.samples.validation > 0
    counts = [config.task.get(f"{part}_classes") for part in ("train", "validation", "test")]
    has_splits = "background" in parameters(config.data.target)
    if has_splits:
        counts = [len(whole.classes) - counts[1], counts[1], 0]
    if counts[0] < 2 or min(counts) < 0 or sum(counts) > len(whole.classes):
        raise ValueError(
            "task.train_classes, validation_classes and test_classes must leave 2 classes to train and sum to at most "
            f"{len(whole.classes)}, got {', '.join(map(str, counts))}"
        )
    first_test = counts[0] + counts[1]
    train = materialize(OfClasses(whole, range(counts[0])))
    if has_splits and not validates:
        return train, read_dataset(config, False)
    measured = range(counts[0], first_test) if validates else range(first_test, sum(counts))
    return train, materialize(OfClasses(whole, measured))


def read_dataset(config: Config, train: bool | None) -> Any:
    """Return the training set of the dataset (True), its test set (False) or all of it (None).

    The last four results are cached and shared, so do not modify them.
    """
    try:
        key = repr(encode(config.data))
    except ValueError:
        return _read_uncached(config.data, train)
    return _read_cached(_CacheKey(key, config.data), train, tuple(map(str, data_roots())))


class _CacheKey:
    """A constructor call that is compared by its encoded text."""

    def __init__(self, key: str, call: Call):
        self.key, self.call = key, call

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CacheKey) and self.key == other.key


@functools.lru_cache(maxsize=4)
def _read_cached(key: _CacheKey, train: bool | None, roots: tuple[str, ...]) -> Any:
    """Read a dataset. ``roots``, the data folders, are a part of the cache key."""
    return _read_uncached(key.call, train)


def _read_uncached(data: Call, train: bool | None) -> Any:
    context = {} if train is None else {"train": train, "background": train}
    if train is False and not {"train", "background"} & set(parameters(data.target)):
        raise ValueError(f"{data.name} has no test set: set samples.validation=0.1 to exclude samples from training")
    return data.build(**context)


def _resize_to_input(config: Config, dataset: Any) -> Any:
    """Return the pictures in the input size of the network. Other samples are not changed."""
    if not isinstance(dataset, InMemory) or dataset.data.ndim != 4 or dataset.data.dtype != torch.uint8:
        return dataset
    target = build_base_preprocessing(config, tuple(dataset.data.shape[1:]))
    same = tuple(dataset.data.shape[1:]) == (target.channels, *target.size) and config.crop is None
    return dataset if same else resize_samples(InMemory(dataset.data, dataset.labels, dataset.classes), target)
