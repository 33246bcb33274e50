"""From a config to a task: the dataset is read, the network and its head are built for it, and everything is put together."""

import functools
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..config import Call
from ..data import Augmentation, InMemory, PicturePreprocessing, data_roots
from ..data.graphs import Nodes
from ..recognition.networks import feature_dim
from .config import Config, Images
from .datasets import MeanImage, Scaling, as_samples, shaped, statistics
from .selection import held_out, of_first_classes, some, trained_on
from .tasks import Classification, Faces, FewShotRecognition, Graph, Task
from .tasks.classification import with_head
from .tasks.faces import divided


def build_task(config: Config) -> Task:
    """The task a config describes; its network starts from torch's random state, so seed it first.

    >>> from hypersphere.training import Config, build_task, call
    >>> task = build_task(Config(model=call(hs.models.mlp, width=0.05), head=call(hs.objectives.ArcFace)))
    >>> type(task).__name__, len(task.train_samples), task.model.classifier.num_classes
    ('Classification', 1442, 10)
    >>> loss, parts = task(0, *next(iter(task.loader)))  # of the first batch
    >>> loss.shape, list(parts)
    (torch.Size([]), ['objective'])
    """
    kind = config.task.target
    if inspect_graph(config):
        return _graph(config)
    parts = _parts(config, kind)
    train = parts["train"]
    scaling, sizes = _inputs(config.images, train)
    augment = None if config.augment is None else config.augment.build()
    sampler = None if config.sampler is None else config.sampler.build(labels=as_samples(train).labels)
    context = {**parts, "scaling": scaling, "augment": augment, "seed": config.seed, "batch_size": config.batch_size}
    context |= {"sampler": sampler, "workers": config.workers}
    recipe = _recipe(config.model, sizes)
    if not issubclass(cast(type, kind), Classification):
        model = recipe.build()
        return cast(Task, config.task.build(model=model, regularizers=_regularizers(config, model), **context))
    return _classification(config, recipe, context, _sample(train, scaling))


def inspect_graph(config: Config) -> bool:
    """Whether the task is one graph."""
    return isinstance(config.task.target, type) and issubclass(config.task.target, Graph)


def _classification(config: Config, recipe: Call, context: dict[str, Any], sample: Tensor | None) -> Task:
    body = recipe.build()
    dim = feature_dim(body, sample) if sample is not None else int(body.feature_dim)
    classes = len(context["graph"].classes if "graph" in context else as_samples(context["train"]).classes)
    head = config.head.build(in_features=dim, num_classes=classes)
    model = with_head(body, head)
    generator = torch.Generator().manual_seed(config.seed)
    if config.orthogonal is not None:
        config.orthogonal.build(model=model, generator=generator)
    losses = [
        (t.weight, t.objective.build(in_features=dim, num_classes=classes, feature_dim=dim)) for t in config.losses
    ]
    task = config.task.build(
        model=model,
        head=head,
        losses=losses,
        regularizers=_regularizers(config, model),
        project_every=config.project_every,
        weighted_gradients=config.weighted_gradients,
        **context,
    )
    task.recipe = recipe
    task.mirror = config.images.mirror
    return cast(Task, task)


def _regularizers(config: Config, model: nn.Module) -> list[nn.Module]:
    wanted = getattr(model, "discriminator", model)  # of two players the one that judges is regularised
    chosen = [part for part in (config.energy, config.regularizer) if part is not None]
    return [part.build(model=wanted, seed=config.seed) for part in chosen]


def _graph(config: Config) -> Task:
    graph = config.data.build()
    if not isinstance(graph, Nodes):
        raise ValueError(f"data must be a graph for the task Graph, such as Planetoid, got {config.data.name}")
    recipe = _recipe(config.model, {"in_features": graph.data.shape[1]})
    validation = config.samples.validation > 0
    context = {"graph": graph, "validation": validation, "seed": config.seed, "batch_size": config.batch_size}
    return _classification(config, recipe, context, None)


def _recipe(model: Call, sizes: dict[str, Any]) -> Call:
    """The model's call with what the data decides: it builds the network again wherever the data is not."""
    from ..config import parameters

    known = parameters(model.target)
    added = {key: value for key, value in sizes.items() if key in known and key not in model.arguments}
    if "num_classes" in known and "num_classes" not in model.arguments:
        added["num_classes"] = None
    return Call(model.target, {**model.arguments, **added})


def _parts(config: Config, kind: Any) -> dict[str, Any]:
    """The samples to train on and to measure, shaped as the images' settings say."""
    if issubclass(kind, Faces):
        fold = config.task.get("fold")
        faces = read(config, None)
        found = divided(faces, fold, config.samples.validation > 0)
        return {**found, **{k: _shaped(config.images, found[k]) for k in ("train", "measured")}}
    if issubclass(kind, FewShotRecognition):
        train, measured = _few_shot(config)
    else:
        whole = of_first_classes(config.samples, read(config, True))
        train, measured = held_out(config.samples, whole, getattr(kind, "unseen", False))
        measured = of_first_classes(config.samples, read(config, False)) if measured is None else measured
    train = trained_on(config.samples, _shaped(config.images, train))
    return {"train": train, "measured": some(config.samples, _shaped(config.images, measured))}


def _few_shot(config: Config) -> tuple[Any, Any]:
    """Classes to train on and others: the dataset's own division where its parts share no class, else one by number."""
    whole, held = read(config, True), config.samples.validation > 0
    division = [config.task.get(f"{part}_classes") for part in ("train", "validation", "test")]
    own = "background" in _arguments(config.data)
    if own:
        division = [len(whole.classes) - division[1], division[1], 0]
    if division[0] < 2 or min(division) < 0 or sum(division) > len(whole.classes):
        raise ValueError(
            "task.train_classes, validation_classes and test_classes must leave 2 classes to train and sum to at most "
            f"{len(whole.classes)}, got {', '.join(map(str, division))}"
        )
    from ..data import OfClasses
    from .selection import materialize

    last = division[0] + division[1]
    train = materialize(OfClasses(whole, range(division[0])))
    if own and not held:
        return train, read(config, False)
    chosen = range(division[0], last) if held else range(last, sum(division))
    return train, materialize(OfClasses(whole, chosen))


def read(config: Config, train: bool | None) -> Any:
    """The training part of the dataset (True), its test part (False) or all of it (None); the last few are kept.

    What is returned is shared and must not be written to.
    """
    from ..config import encode

    try:
        key = repr(encode(config.data))
    except ValueError:
        return _read_now(config.data, train)
    return _read(_Keyed(key, config.data), train, tuple(map(str, data_roots())))


class _Keyed:
    """A call with a key by which it is remembered."""

    def __init__(self, key: str, call: Call):
        self.key, self.call = key, call

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.key == other.key


@functools.lru_cache(maxsize=4)
def _read(keyed: _Keyed, train: bool | None, roots: tuple[str, ...]) -> Any:
    """``roots`` is where the files are, so that another data root is another dataset."""
    return _read_now(keyed.call, train)


def _read_now(data: Call, train: bool | None) -> Any:
    context = {} if train is None else {"train": train, "background": train}
    if train is False and not {"train", "background"} & set(_arguments(data)):
        raise ValueError(f"{data.name} has no test part: hold samples out with samples.validation=0.1")
    return data.build(**context)


def _arguments(data: Call) -> list[str]:
    from ..config import parameters

    return list(parameters(data.target))


def _shaped(images: Images, dataset: Any) -> Any:
    if not isinstance(dataset, InMemory) or dataset.data.ndim != 4 or dataset.data.dtype != torch.uint8:
        return dataset
    wanted = _preprocessing(images, tuple(dataset.data.shape[1:]))
    same = tuple(dataset.data.shape[1:]) == (wanted.channels, *wanted.size) and images.crop is None
    return dataset if same else shaped(InMemory(dataset.data, dataset.labels, dataset.classes), wanted)


def _preprocessing(images: Images, shape: tuple[int, ...]) -> PicturePreprocessing:
    size = (shape[1], shape[2]) if images.size is None else (images.size, images.size)
    channels = shape[0] if images.channels is None else images.channels
    crop = images.crop
    return PicturePreprocessing(size=size, channels=channels, mean=0.0, std=1.0, mirror=images.mirror, crop=crop)


def _inputs(images: Images, train: Any) -> tuple[Augmentation | None, dict[str, Any]]:
    """What makes numbers of pixels, with statistics of the training part, and the sizes a network is built for."""
    sample = as_samples(train).batch(torch.arange(1))[0]
    if sample.ndim != 4:
        return None, {"in_features": sample[0].numel()}
    sizes = {"in_channels": sample.shape[1], "input_size": (int(sample.shape[2]), int(sample.shape[3]))}
    sizes["in_features"] = sample[0].numel()
    if sample.is_floating_point():
        return None, sizes
    base = _preprocessing(images, tuple(sample.shape[1:]))
    if images.normalize == "pixel_mean":
        return MeanImage.of(train, pixelwise=True, scale=128.0), sizes
    if images.normalize == "deviation":
        return Scaling(statistics(as_samples(train), base)), sizes
    known = {"none": (0.0, 1 / 255), "unit": (0.0, 1.0), "faces": (127.5 / 255, 128 / 255)}
    return Scaling(base.with_statistics(*known[images.normalize])), sizes


def _sample(train: Any, scaling: Augmentation | None) -> Tensor:
    raw = as_samples(train).batch(torch.arange(1))[0]
    scaled = raw if scaling is None else scaling(raw, raw.new_empty(1, 0, dtype=torch.float64))
    return scaled.transpose(1, 2) if scaled.ndim == 3 and scaled.shape[-1] == 3 else scaled
