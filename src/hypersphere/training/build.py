"""Building a task from settings: the data, the network with its head, and the regularizers."""

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
from .selection import held_out, materialize, of_first_classes, some, trained_on
from .settings import Config, TaskSettings
from .tasks import Classification, Faces, FewShotRecognition, Graph, Task
from .tasks.classification import with_head
from .tasks.faces import split_fold
from .weights import start_from


class TaskData(NamedTuple):
    """The data of a task.

    Attributes:
        arguments: Arguments of the task that come from the data: ``train``, ``measured``, for some tasks pairs or a graph.
        classes: The number of classes to train on.
        sizes: Sizes of the input by the names that networks use: ``in_channels``, ``input_size``, ``in_features``, ``vocabulary``.
        preprocessing: How stored samples become inputs; None if they are inputs already.
        sample: One or more inputs, to find the dimension of the features; None for a graph.
    """

    arguments: Mapping[str, Any]
    classes: int
    sizes: Mapping[str, Any]
    preprocessing: Normalizer | None = None
    sample: Tensor | None = None


def build_task(config: Config) -> Task:
    """Return the task that the settings describe.

    The network starts from torch's random state, so seed it first.

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
    started: dict[str, list[str]] = {}

    def load(network: nn.Module) -> None:
        started.update(start_from(network, cast(str, config.weights)))

    # Weights become the fixed neurons of orthogonal training, so they are loaded before their layers get a rotation.
    early = config.weights is not None and config.orthogonal is not None
    task = assemble_task(config, config.task, read_data(config), load=load if early else None)
    task.started = started
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
    """Return a task on data that has been read: backbone, head, orthogonal training, losses and regularizers.

    Args:
        settings: The settings of the parts.
        task: The call of the task.
        data: Samples, preprocessing and sizes.
        feature_size: The dimension of the features, where the backbone lets it be chosen or is followed by a projection.
        project: Put a trained projection to ``feature_size`` behind the backbone. None does so if the backbone has no
            argument ``feature_dim``.
        load: Called with the new network before its head is built, to load weights.

    Raises:
        ValueError: If the parts do not fit together.
    """
    backbone = _complete_backbone(settings.backbone, data, feature_size, project)
    body = cast(nn.Module, backbone.build())
    if load is not None:
        load(body)
    context = {
        **data.arguments,
        "preprocessing": data.preprocessing,
        "augment": _build_augmentation(settings),
        "sampler": None
        if settings.sampler is None
        else settings.sampler.build(labels=as_samples(data.arguments["train"]).labels),
        "seed": settings.seed,
        "batch_size": settings.batch_size,
        "workers": settings.workers or 0,
    }
    if not issubclass(cast(type, task.target), Classification):
        return cast(Task, task.build(model=body, regularizers=_build_regularizers(settings, body), **context))
    dim = int(body.feature_dim) if data.sample is None else find_feature_dim(body, data.sample)  # type: ignore[arg-type]
    sizes = {"in_features": dim, "num_classes": data.classes, "feature_dim": dim}
    head = settings.head.build(**{name: sizes[name] for name in ("in_features", "num_classes")})
    model = with_head(body, head)
    if settings.orthogonal is not None:
        settings.orthogonal.build(model=model, generator=torch.Generator().manual_seed(settings.seed))
    built = task.build(
        model=model,
        head=head,
        losses=[(term.weight, term.objective.build(**sizes)) for term in settings.losses],
        regularizers=_build_regularizers(settings, model),
        project_every=settings.project_every,
        weighted_gradients=settings.weighted_gradients,
        **context,
    )
    built.recipe = backbone
    return cast(Task, built)


def read_data(config: Config) -> TaskData:
    """Return the data of a task: read, selected and resized as the settings say.

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
            base = base_preprocessing(config, tuple(sample.shape[1:]))
            normalizer = choose_normalizer(config.normalize, base, arguments["train"])
    inputs = sample if normalizer is None else normalizer.normalize(sample)
    inputs = inputs.transpose(1, 2) if inputs.ndim == 3 and inputs.shape[-1] == 3 else inputs  # clouds of points
    return TaskData(arguments, len(train.classes), sizes, normalizer, inputs)


def choose_normalizer(name: str, base: PicturePreprocessing, train: Any) -> Normalizer:
    """Return the preprocessing with the normalization of a name, whose statistics are those of the training samples."""
    if name == "pixel_mean":
        return cast(MeanImage, MeanImage.of(train, pixelwise=True, scale=128.0))
    if name == "deviation":
        return with_statistics(base, as_samples(train))
    known = {"none": (0.0, 1 / 255), "unit": (0.0, 1.0), "faces": (127.5 / 255, 128 / 255)}
    return base.with_statistics(*known[name])


def base_preprocessing(settings: TaskSettings, shape: tuple[int, ...]) -> PicturePreprocessing:
    """Return the preprocessing of pictures with (channels, height, width) before their statistics are known."""
    return PicturePreprocessing(
        size=(shape[1], shape[2]) if settings.input_size is None else settings.input_size,
        channels=shape[0] if settings.channels is None else settings.channels,
        mean=0.0,
        std=1.0,
        mirror=bool(settings.mirror),
        crop=settings.crop,
        resize=settings.resize,
    )


def _build_augmentation(settings: TaskSettings) -> Any:
    steps = [step.build() for step in settings.augmentations]
    return Compose(*steps) if len(steps) > 1 else steps[0] if steps else None


def _build_regularizers(settings: TaskSettings, model: nn.Module) -> list[nn.Module]:
    regularized = getattr(model, "discriminator", model)  # of a GAN the discriminator is regularized
    return [part.build(model=regularized, seed=settings.seed) for part in settings.energies]


def _complete_backbone(backbone: Call, data: TaskData, dim: int | None, project: bool | None) -> Call:
    """Return the call of the backbone with the sizes from the data, so that it can be repeated without the data."""
    known = parameters(backbone.target)
    sizes = {**data.sizes, "num_classes": None} | ({} if dim is None else {"feature_dim": dim})
    added = {name: value for name, value in sizes.items() if name in known and name not in backbone.arguments}
    complete = Call(backbone.target, {**backbone.arguments, **added})
    if not (project or (project is None and "feature_dim" not in known)):
        return complete
    assert data.sample is not None
    with torch.random.fork_rng():
        found = find_feature_dim(cast(nn.Module, complete.build()), data.sample)
    return Call(Projected, {"network": complete, "in_features": found, "feature_dim": dim})


def _read_samples(config: Config, kind: Any) -> dict[str, Any]:
    """Return the training and the measured samples, resized according to the settings."""
    if issubclass(kind, Faces):
        found = split_fold(read(config, None), config.task.get("fold"), config.samples.validation > 0)
        return {**found, **{part: _resize(config, found[part]) for part in ("train", "measured")}}
    if issubclass(kind, FewShotRecognition):
        train, measured = _split_few_shot(config)
    else:
        whole = of_first_classes(config.samples, read(config, True))
        train, measured = held_out(config.samples, whole, getattr(kind, "unseen", False))
        measured = of_first_classes(config.samples, read(config, False)) if measured is None else measured
    train = trained_on(config.samples, _resize(config, train))
    return {"train": train, "measured": some(config.samples, _resize(config, measured))}


def _split_few_shot(config: Config) -> tuple[Any, Any]:
    """Split by class: use the dataset's own splits if they share no class, otherwise split by class number."""
    whole, held = read(config, True), config.samples.validation > 0
    division = [config.task.get(f"{part}_classes") for part in ("train", "validation", "test")]
    own = "background" in parameters(config.data.target)
    if own:
        division = [len(whole.classes) - division[1], division[1], 0]
    if division[0] < 2 or min(division) < 0 or sum(division) > len(whole.classes):
        raise ValueError(
            "task.train_classes, validation_classes and test_classes must leave 2 classes to train and sum to at most "
            f"{len(whole.classes)}, got {', '.join(map(str, division))}"
        )
    last = division[0] + division[1]
    train = materialize(OfClasses(whole, range(division[0])))
    if own and not held:
        return train, read(config, False)
    chosen = range(division[0], last) if held else range(last, sum(division))
    return train, materialize(OfClasses(whole, chosen))


def read(config: Config, train: bool | None) -> Any:
    """Return the training part of the dataset (True), its test part (False) or all of it (None).

    The last few results are kept and shared, so do not write to them.
    """
    try:
        key = repr(encode(config.data))
    except ValueError:
        return _read_now(config.data, train)
    return _read(_Keyed(key, config.data), train, tuple(map(str, data_roots())))


class _Keyed:
    """A call with a key for the cache."""

    def __init__(self, key: str, call: Call):
        self.key, self.call = key, call

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.key == other.key


@functools.lru_cache(maxsize=4)
def _read(keyed: _Keyed, train: bool | None, roots: tuple[str, ...]) -> Any:
    """Read a dataset. ``roots`` are the folders of the files, so that another data root is another entry in the cache."""
    return _read_now(keyed.call, train)


def _read_now(data: Call, train: bool | None) -> Any:
    context = {} if train is None else {"train": train, "background": train}
    if train is False and not {"train", "background"} & set(parameters(data.target)):
        raise ValueError(f"{data.name} has no test part: hold samples out with samples.validation=0.1")
    return data.build(**context)


def _resize(config: Config, dataset: Any) -> Any:
    if not isinstance(dataset, InMemory) or dataset.data.ndim != 4 or dataset.data.dtype != torch.uint8:
        return dataset
    target = base_preprocessing(config, tuple(dataset.data.shape[1:]))
    same = tuple(dataset.data.shape[1:]) == (target.channels, *target.size) and config.crop is None
    return dataset if same else resize_samples(InMemory(dataset.data, dataset.labels, dataset.classes), target)
