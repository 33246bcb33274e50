"""Classification by a network and a head, with further losses and regularizers, and the embedder file of a task."""

import functools
import inspect
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from typing_extensions import TypedDict

from ... import operators, plots
from ...config import Call, as_call, parameters
from ...data import Augmentation, Loader, PicturePreprocessing, Preprocessing
from ...data.samplers import Sampler
from ...evaluation import Evidence, choose_samples, thumbnails
from ...geometry import normalize
from ...models import Network
from ...models.network import find_feature_dim, read_features
from ...neurons import Classifier
from ...recognition import Embedder, all_processes, extract_features
from ..averaging import renormalize_weights
from ..datasets import (
    Normalizer,
    Samples,
    append_normalization,
    as_samples,
    count_classes,
    embed_with,
    is_stream,
    read_samples,
)
from .task import Task, draw, measure_features, sum_losses


class Classification(Task):
    """Any network and head on any dataset of classes, measured by its accuracy on other samples.

    Args:
        model: the network up to its features: any module, or a :class:`~hypersphere.config.Call` or ``functools.partial`` that
            builds it. An embedder file can store a call, but not a module.
        head: a head of ``hypersphere.objectives``, or a call or partial that builds it from the sizes of features and classes.
        train: samples ``(input, label)`` to train on: a map-style dataset, or an iterable dataset with an attribute
            ``classes`` or ``num_classes``.
        measured: samples to measure the network on; the training samples if left out.
        losses: further objectives of features and labels, each with its weight.
        regularizers: losses of the weights, with the methods ``terms(labels)`` and ``step()``.
        batch_size: samples per batch, summed over all processes.
        augment: random changes of training batches.
        preprocessing: conversion of stored samples to inputs, such as :class:`~hypersphere.data.PicturePreprocessing`; None if
            the samples are inputs.
        seed: seed of batches and augmentation.
        sampler: another order of the training samples, such as blocks of P classes with K samples each.
        workers: threads that prefetch batches.
        project_every: steps between weight projections of operators (4.4.1 of Liu, 2020); 0 for none.
        weighted_gradients: multiply the gradients of operators by the norm of the weight (4.4.2).

    >>> from hypersphere.training import Classification, call
    >>> data = hs.data.InMemory(torch.randn(30, 4), torch.arange(30) % 3, ("a", "b", "c"))
    >>> task = Classification(torch.nn.Linear(4, 8), call(hs.objectives.ArcFace), data, batch_size=10)
    >>> loss, parts = task(0, *next(iter(task.loader)))
    >>> list(parts), task.embed(data).shape, 0 <= task.evaluate()["accuracy"] <= 100
    (['objective'], torch.Size([30, 8]), True)
    """

    model: Any

    def __init__(
        self,
        model: nn.Module | Call | functools.partial[nn.Module],
        head: nn.Module | Call | functools.partial[nn.Module],
        train: Any,
        measured: Any = None,
        *,
        losses: Sequence[tuple[float, nn.Module]] = (),
        regularizers: Sequence[nn.Module] = (),
        batch_size: int = 128,
        augment: Augmentation | None = None,
        preprocessing: Normalizer | None = None,
        seed: int = 0,
        sampler: Sampler | None = None,
        workers: int = 0,
        project_every: int = 0,
        weighted_gradients: bool = False,
    ):
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"batch_size must be an integer ≥ 1, got {batch_size!r}")
        if project_every < 0:
            raise ValueError(f"project_every must be an integer ≥ 0, got {project_every!r}")
        if is_stream(train) and measured is None:
            raise ValueError("measured must be given if train is an iterable dataset, which cannot be measured")
        self.train_samples = train if is_stream(train) else as_samples(train, "train")
        self.num_classes = count_classes(self.train_samples)
        self.measured_samples = self.train_samples if measured is None else as_samples(measured, "measured")
        self.measures_training = measured is None
        self.preprocessing, self.project_every = preprocessing, project_every
        self.network_call = as_call(model) if isinstance(model, Call | functools.partial) else None
        self.model = self._build_network(
            model if self.network_call is None else self.network_call,  # type: ignore[arg-type]
            as_call(head) if isinstance(head, functools.partial) else head,
        )
        self.losses = nn.ModuleList([loss for _, loss in losses])
        self.loss_weights = [float(weight) for weight, _ in losses]
        self.regularizers = nn.ModuleList(regularizers)
        if weighted_gradients:
            operators.weighted_gradients(self.model)
        self.loader = Loader(
            self.train_samples,
            batch_size if is_stream(train) else min(batch_size, len(self.train_samples)),
            seed,
            drop_last=True,
            augment=append_normalization(augment, preprocessing),
            sampler=sampler,
            workers=workers,
        )

    def _build_network(self, model: nn.Module | Call, head: nn.Module | Call) -> nn.Module:
        body = cast(nn.Module, model.build() if isinstance(model, Call) else model)
        if getattr(body, "classifier", None) is not None and isinstance(body.classifier, Classifier):
            return body  # the model was built with its head
        if isinstance(head, Call):
            dim = find_feature_dim(body, self.inputs(self._normalize(self.measured_samples.batch(torch.arange(1))[0])))
            head = cast(nn.Module, head.build(in_features=dim, num_classes=self.num_classes))
        return attach_head(body, head)

    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of the head's loss, the other losses and the regularizers, and each of these terms by name."""
        inputs, labels = batch
        return sum_losses(self.objectives(self.inputs(inputs), labels), self.regularizers, labels)

    def objectives(self, inputs: Tensor, labels: Int[Tensor, "b"]) -> dict[str, Tensor]:
        """Return the losses by name, without regularizers."""
        features = self.features(inputs)
        parts = {"objective": self.model.classifier(features, labels)}
        for weight, loss in zip(self.loss_weights, self.losses, strict=True):
            parts[type(loss).__name__] = weight * loss(features, labels)
        auxiliary = getattr(self.model, "auxiliary_losses", None)  # such as the transform penalty of PointNet
        return parts if auxiliary is None else {**parts, **auxiliary()}

    def features(self, inputs: Tensor) -> Float[Tensor, "b d"]:
        """Return the embedding of a prepared batch."""
        return cast(Tensor, self.model.features(inputs))

    def inputs(self, batch: Tensor) -> Tensor:
        """Return a batch in the layout of the network: point clouds (batch, points, 3) become (batch, 3, points)."""
        return batch.transpose(1, 2) if batch.ndim == 3 and batch.shape[-1] == 3 else batch

    def advance(self, step: int) -> None:
        """Advance the schedules of the head, the losses and the regularizers, such as λ, margins and projection bases.

        Then project the weights every ``project_every`` steps, and normalize the weights of a network on the sphere.
        """
        for module in (self.model.classifier, *self.losses, *self.regularizers):
            advance_schedules = getattr(module, "step", None)
            if callable(advance_schedules):
                advance_schedules()
        if self.project_every and step % self.project_every == 0:
            operators.project_weights(self.model)
        renormalize_weights(self.model)

    @torch.no_grad()
    def embed(self, samples: Samples, batch: int = 512) -> Float[Tensor, "n d"]:
        """Return features of samples on the CPU. Several processes share the work, and each returns all features."""
        read = lambda index: read_samples(samples, index)  # noqa: E731
        embed = embed_with(self.embed_batch, samples)
        return extract_features(embed, read, len(samples), batch, group=all_processes())

    def embed_batch(self, raw: Tensor) -> Float[Tensor, "b d"]:
        """Return features of stored samples."""
        return self.features(self.inputs(self._normalize(raw.to(self.device))))

    def _normalize(self, raw: Tensor) -> Tensor:
        return raw if self.preprocessing is None else self.preprocessing.normalize(raw)

    def evaluate(self) -> dict[str, float]:
        """Return the values of :meth:`accuracies` and measures of the geometry of the features."""
        features, labels = self.embed(self.measured_samples), self.measured_samples.labels
        return {**self.accuracies(features, labels), **measure_features(features, labels)}

    def accuracies(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> dict[str, float]:
        """Return accuracy, error, mean accuracy per class and largest error of a class, in percent, for the head's predictions."""
        head = self.model.classifier
        correct = torch.cat([head.predict(part.to(self.device)).cpu() for part in features.split(1024)]) == labels
        counts = torch.bincount(labels)
        class_accuracies = torch.bincount(labels, weights=correct.double())[counts > 0] / counts[counts > 0]
        accuracy = 100 * correct.double().mean().item()
        return {
            "accuracy": accuracy,
            "error": 100 - accuracy,
            "balanced_accuracy": 100 * class_accuracies.mean().item(),
            "worst_class_error": 100 - 100 * class_accuracies.min().item(),
        }

    @torch.no_grad()
    def pictures(self, folder: pathlib.Path) -> None:
        """Draw the angles of pairs, and the features if they have 2 or 3 dimensions."""
        index = torch.arange(min(len(self.measured_samples), 2000))
        parts = [self.embed_batch(self.measured_samples.batch(part)[0]).float().cpu() for part in index.split(512)]
        features, labels = torch.cat(parts), self.measured_samples.labels[index]
        draw(folder / "angles.png", plots.plot_angle_histogram, features, labels)
        if features.shape[1] in (2, 3):
            centers = self.model.classifier.weight.detach().cpu()
            projection = "3d" if features.shape[1] == 3 else None
            draw(folder / "features.png", plots.plot_features, features, labels, centers=centers, projection=projection)

    @torch.no_grad()
    def evidence(self) -> Evidence | None:
        """Return about two thousand measured samples, their features, and pictures if they are images."""
        samples = self.measured_samples
        index = choose_samples(samples.labels)
        raw = torch.cat([samples.batch(part)[0] for part in index.split(512)])
        features = torch.cat([self.embed_batch(part).float().cpu() for part in raw.split(512)])
        labels = samples.labels[index].cpu()
        return Evidence(features, labels, list(samples.classes), len(samples), thumbnails(raw))

    def write_embedder(self, folder: pathlib.Path, weights: Mapping[str, Tensor]) -> str | None:
        """Write the network up to its features as an embedder file. Return the reason if that is impossible, otherwise None."""
        sample = self.measured_samples.batch(torch.arange(min(4, len(self.measured_samples))))[0]
        return save_embedder(self, weights, sample, folder / "embedder.safetensors")

    def summary(self) -> dict[str, Any]:
        """Return the sizes of the datasets and of the features, and the names of the network and the head."""
        stream = is_stream(self.train_samples)
        measured = "the training samples" if self.measures_training else len(self.measured_samples)
        return {
            "training samples": "a stream" if stream else len(self.train_samples),
            "classes": self.num_classes,
            "measured samples": measured,
            "features": self.model.classifier.weight.shape[1],
            "network": type(getattr(self.model, "body", self.model)).__name__,
            "head": type(self.model.classifier).__name__,
        }

    def compile_model(self) -> None:
        """Compile the network up to its features, which takes most of the time."""
        self.model.features = torch.compile(self.model.features)


class Headed(nn.Module):
    """A module that computes features, and its head, with the interface of the networks of ``hypersphere.models``.

    >>> net = Headed(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3))
    >>> net.features(torch.zeros(2, 4)).shape, net(torch.zeros(2, 4)).shape
    (torch.Size([2, 8]), torch.Size([2, 3]))
    """

    def __init__(self, body: nn.Module, classifier: nn.Module | None):
        super().__init__()
        self.body = body
        self.classifier = classifier

    def features(self, x: Tensor) -> Float[Tensor, "b d"]:
        """Return the embedding of a batch."""
        return read_features(self.body, x)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, or features without a head."""
        features = self.features(x)
        if self.classifier is None:
            return features
        return cast(Tensor, getattr(self.classifier, "logits", self.classifier)(features))


def attach_head(model: nn.Module, head: nn.Module) -> nn.Module:
    """Return the network with its head: as ``classifier`` of a network of this library, otherwise in a :class:`Headed`."""
    if isinstance(model, Network):
        model.classifier = head
        return model
    return Headed(model, head)


@runtime_checkable
class EmbeddingTask(Protocol):
    """A task whose network computes features of samples, so that it can be saved as an embedder.

    >>> from hypersphere.training.tasks.classification import EmbeddingTask
    >>> data = hs.data.InMemory(torch.randn(30, 4), torch.arange(30) % 3, ("a", "b", "c"))
    >>> task = Classification(torch.nn.Linear(4, 8), hs.objectives.ArcFace(8, 3), data, batch_size=10)
    >>> isinstance(task, EmbeddingTask)
    True
    """

    model: Any
    network_call: Call | None
    preprocessing: Normalizer | None

    def embed_batch(self, raw: Tensor) -> Float[Tensor, "b d"]:
        """Return the features of stored samples."""


class TaskOptions(TypedDict, total=False):
    """Options of :class:`~hypersphere.training.tasks.Classification` that the tasks derived from it pass on.

    - ``losses``: further objectives of features and labels, each with its weight.
    - ``regularizers``: losses of the weights.
    - ``batch_size``: samples per batch, summed over all processes.
    - ``augment``: random changes of training batches.
    - ``preprocessing``: conversion of stored samples to inputs.
    - ``seed``: seed of batches and augmentation.
    - ``sampler``: another order of the training samples.
    - ``workers``: threads that prefetch batches.
    - ``project_every``: steps between weight projections of operators; 0 for none.
    - ``weighted_gradients``: multiply the gradients of operators by the norm of the weight.
    """

    losses: Sequence[tuple[float, nn.Module]]
    regularizers: Sequence[nn.Module]
    batch_size: int
    augment: Augmentation | None
    preprocessing: Normalizer | None
    seed: int
    sampler: Sampler | None
    workers: int
    project_every: int
    weighted_gradients: bool


def save_embedder(
    task: EmbeddingTask, weights: Mapping[str, Tensor], sample: Tensor, path: pathlib.Path, **card: Any
) -> str | None:
    """Write the network up to its features with its preprocessing.

    The file is loaded and compared with the network on ``sample`` before it is renamed to its final name.

    Args:
        task: The task.
        weights: The final weights of its network.
        sample: A batch of stored samples.
        path: The file to write.
        **card: Entries of the embedder's model card.

    Returns:
        None if the file was written, otherwise the reason why a file cannot describe the network or its preprocessing.
    """
    preprocessing = get_file_preprocessing(task, sample)
    if isinstance(preprocessing, str):
        return preprocessing
    call = get_network_call(task)
    if isinstance(call, str):
        return call
    prefix = "body." if isinstance(task.model, Headed) else ""
    own_weights = {
        name.removeprefix(prefix): tensor
        for name, tensor in weights.items()
        if name.startswith(prefix) and not name.startswith("classifier.")
    }
    # An embedder of recordings averages the directions of windows, so only directions are compared.
    function = (lambda raw: normalize(task.embed_batch(raw))) if preprocessing.averages_windows else task.embed_batch
    try:
        Embedder.from_call(call, own_weights, preprocessing).save(path, compare=(function, sample), card=card)
    except ValueError as error:
        return str(error)
    return None


def get_file_preprocessing(task: EmbeddingTask, sample: Tensor) -> Preprocessing | str:
    """Return the preprocessing to store in the embedder file of a task, or the reason why there is none."""
    preprocessing = task.preprocessing
    if isinstance(preprocessing, Preprocessing):
        return preprocessing
    if sample.ndim != 4:
        return f"inputs of shape {tuple(sample.shape[1:])} are not images"
    if preprocessing is not None:
        return f"an embedder file cannot store a normalization by {type(preprocessing).__name__}"
    if not sample.is_floating_point():
        return "its dataset returns integer pixels and the task has no preprocessing="
    size = (int(sample.shape[2]), int(sample.shape[3]))
    return PicturePreprocessing(size=size, channels=int(sample.shape[1]), mean=0.0, std=1.0)


def get_network_call(task: EmbeddingTask) -> Call | str:
    """Return the call that builds the network without its head, or the reason why there is none."""
    if task.network_call is not None:
        arguments = {"num_classes": None} if "num_classes" in parameters(task.network_call.target) else {}
        return Call(task.network_call.target, {**task.network_call.arguments, **arguments})
    body = getattr(task.model, "body", task.model)
    kind: Any = type(body)
    if "<locals>" in kind.__qualname__ or kind.__module__ == "__main__":
        return f"{kind.__qualname__} cannot be imported by name; define it in a module"
    needed = [name for name, p in parameters(kind).items() if p.required]
    if needed or inspect.isabstract(kind):
        return f"the arguments that built {kind.__qualname__} are not known; give the task model=call({kind.__qualname__}, …)"
    return Call(kind)
