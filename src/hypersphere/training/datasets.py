"""Datasets of tasks: samples with labels and classes, and the normalization of samples."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor
from torch.utils.data import IterableDataset

from ..data import Augmentation, Compose, InMemory, Normalize, PicturePreprocessing
from ..geometry import normalize


@runtime_checkable
class Samples(Protocol):
    """A dataset that returns batches of samples."""

    labels: Tensor

    @property
    def classes(self) -> Sequence[str]:
        """The names of the classes."""

    def __len__(self) -> int: ...

    def batch(self, index: Int[Tensor, "b"]) -> tuple[Tensor, Tensor]:
        """Return the samples at ``index`` and their labels."""


@runtime_checkable
class Normalizer(Protocol):
    """The conversion of stored samples to inputs: a :class:`~hypersphere.data.Preprocessing`, or a mean image."""

    def normalize(self, stored: Tensor) -> Tensor:
        """Return the inputs of a batch."""


class NormalizeBatch(Augmentation):
    """The normalization of a preprocessing as the last step of an augmentation, without randomness.

    >>> scale = NormalizeBatch(PicturePreprocessing(size=(1, 2), channels=1, mean=0.5, std=0.5))
    >>> scale(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), torch.empty(1, 0, dtype=torch.float64)).flatten().tolist()
    [-1.0, 1.0]
    """

    def __init__(self, preprocessing: Normalizer):
        self.preprocessing = preprocessing

    def __call__(self, batch: Shaped[Tensor, "b ..."], u: Float[Tensor, "b draws"]) -> Shaped[Tensor, "b ..."]:
        """Return the inputs of a batch."""
        return self.preprocessing.normalize(batch)


def append_normalization(augment: Augmentation | None, preprocessing: Normalizer | None) -> Augmentation | None:
    """Return an augmentation followed by the normalization of a preprocessing; None if there is neither."""
    steps = [augment, None if preprocessing is None else NormalizeBatch(preprocessing)]
    present = [step for step in steps if step is not None]
    return Compose(*present) if present else None


def normalize_to_unit(images: Tensor, preprocessing: Normalizer | None, task: str) -> Float[Tensor, "n c h w"]:
    """Return stored images as inputs, which must lie in [0, 1] for generative tasks.

    Args:
        images: Samples as the dataset returns them.
        preprocessing: Converts stored samples to inputs; None if the samples are inputs.
        task: The name of the task, for the error message.

    Raises:
        ValueError: If a value lies outside of [0, 1].
    """
    inputs = images if preprocessing is None else preprocessing.normalize(images)
    if float(inputs.min()) < 0 or float(inputs.max()) > 1:
        raise ValueError(f"inputs must lie in [0, 1] for the task {task}: set normalize=unit")
    return inputs


class MeanImage(Normalize):
    """The normalization (x − mean image)/128.

    The mean has one value per pixel, so it cannot be stored in the preprocessing of an embedder file.

    >>> images = InMemory(torch.tensor([[[[0, 100]]], [[[128, 100]]]], dtype=torch.uint8), torch.tensor([0, 1]), ("a", "b"))
    >>> MeanImage.of(images, pixelwise=True, scale=128.0).normalize(images.data).flatten().tolist()
    [-0.5, 0.0, 0.5, 0.0]
    """

    def normalize(self, stored: Shaped[Tensor, "b ..."]) -> Shaped[Tensor, "b ..."]:
        """Return the inputs of a batch."""
        return self(stored, stored.new_empty(len(stored), 0, dtype=torch.float64))


class Listed:
    """A map-style dataset of ``(input, label)`` pairs with the labels and classes that a task needs.

    Labels are read from ``dataset.labels`` or ``dataset.targets``, otherwise from every sample once. Classes are read from
    ``dataset.classes``, otherwise they are the numbers from 0 to the largest label.

    >>> samples = Listed([(torch.zeros(3), 1), (torch.ones(3), 0), (torch.ones(3), 2)])
    >>> samples.labels.tolist(), samples.classes, samples.batch(torch.tensor([0, 2]))[0].shape
    ([1, 0, 2], ('0', '1', '2'), torch.Size([2, 3]))
    """

    def __init__(self, dataset: Any):
        self.dataset = dataset
        labels = getattr(dataset, "labels", getattr(dataset, "targets", None))
        if labels is None:
            labels = [int(dataset[i][1]) for i in range(len(dataset))]
        self.labels = torch.as_tensor(labels).long().flatten()
        if len(self.labels) != len(dataset):
            raise ValueError(f"a dataset must have a label for each of {len(dataset)} samples, got {len(self.labels)}")
        if len(self.labels) and int(self.labels.min()) < 0:
            raise ValueError(f"labels must be integers ≥ 0, got {int(self.labels.min())}")
        classes = getattr(dataset, "classes", None)
        self.classes = tuple(map(str, range(int(self.labels.max()) + 1) if classes is None else classes))

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.as_tensor(self.dataset[index][0]), int(self.labels[index])

    def batch(self, index: Int[Tensor, "b"]) -> tuple[Tensor, Tensor]:
        """Return the samples at ``index``, stacked, and their labels."""
        inputs = [torch.as_tensor(self.dataset[i][0]) for i in index.tolist()]
        return torch.stack(inputs), self.labels[index]


class WindowSamples:
    """Samples with one or more windows each.

    Args:
        windows: The windows (k, …) of each sample.
        labels: The identity of each sample.
        classes: The names of the identities.
        draw: Draws 8-bit pictures of stored windows, for reports.

    >>> samples = WindowSamples([torch.zeros(2, 4), torch.ones(1, 4)], torch.tensor([0, 1]), ("ann", "bob"), lambda x: x)
    >>> samples.batch(torch.tensor([1]))[0].tolist(), len(samples.list_windows(torch.tensor([0]))[0])
    ([[1.0, 1.0, 1.0, 1.0]], 2)
    """

    def __init__(
        self,
        windows: Sequence[Tensor],
        labels: Int[Tensor, "n"],
        classes: Sequence[str],
        draw: Callable[[Tensor], Tensor],
    ):
        self.windows, self.labels, self.classes, self.draw = list(windows), labels, tuple(classes), draw

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, index: Int[Tensor, "b"]) -> tuple[Shaped[Tensor, "b ..."], Int[Tensor, "b"]]:
        """Return the central window of each sample, and the labels."""
        chosen = [self.windows[i] for i in index.tolist()]
        return torch.stack([windows[len(windows) // 2] for windows in chosen]), self.labels[index]

    def list_windows(self, index: Int[Tensor, "b"]) -> list[Tensor]:
        """Return all windows of each sample."""
        return [self.windows[i] for i in index.tolist()]

    def list_all_windows(
        self, index: Int[Tensor, "b"] | None = None
    ) -> tuple[Shaped[Tensor, "m ..."], Int[Tensor, "m"]]:
        """Return all windows of some samples, or of all, one after the other, with their labels."""
        index = torch.arange(len(self)) if index is None else index
        windows = self.list_windows(index)
        each = torch.tensor([len(part) for part in windows])
        return torch.cat(windows), self.labels[index].repeat_interleave(each)

    def draw_pictures(self, index: Int[Tensor, "b"]) -> UInt8[Tensor, "b c h w"]:
        """Return a picture of each sample."""
        return self.draw(self.batch(index)[0])

    def with_central_windows(self) -> InMemory:
        """Return the central window of each sample as a dataset."""
        return InMemory(*self.batch(torch.arange(len(self))), self.classes)


def is_stream(dataset: Any) -> bool:
    """Return whether a dataset can only be iterated over."""
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")


def count_classes(dataset: Any) -> int:
    """Return the number of classes. A stream must have an attribute ``classes`` or ``num_classes``."""
    classes = getattr(dataset, "classes", getattr(dataset, "num_classes", None))
    if classes is None:
        raise ValueError(f"{type(dataset).__name__} is a stream, so it must have an attribute classes or num_classes")
    return classes if isinstance(classes, int) else len(classes)


def as_samples(dataset: Any, name: str = "dataset") -> Samples:
    """Return any dataset as :class:`Samples`; raise a ``ValueError`` if its length, items or samples are missing."""
    if isinstance(dataset, Samples):
        if not len(dataset):
            raise ValueError(f"{name} must hold samples, got an empty dataset")
        return dataset
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise ValueError(f"{name} must be a dataset of (input, label) with a length, got {type(dataset).__name__}")
    if not len(dataset):
        raise ValueError(f"{name} must hold samples, got an empty dataset")
    return Listed(dataset)


def read_samples(samples: Samples, index: Int[Tensor, "b"]) -> Any:
    """Return stored samples: all windows of each sample, or one tensor if the samples have no windows."""
    return samples.list_windows(index) if isinstance(samples, WindowSamples) else samples.batch(index)[0]


def embed_with(function: Callable[[Tensor], Tensor], samples: Samples) -> Callable[[Any], Tensor]:
    """Return a function from the result of :func:`read_samples` to the mean direction of the features of all windows.

    Args:
        function: Maps a batch of windows to features.
        samples: The samples. If they have no windows, ``function`` itself is returned.
    """
    return functools.partial(average_windows, function) if isinstance(samples, WindowSamples) else function


def average_windows(
    function: Callable[[Tensor], Tensor], windows: Sequence[Tensor], batch: int = 64
) -> Float[Tensor, "n d"]:
    """Return the mean direction of the features of all windows of each sample.

    >>> average_windows(lambda x: x, [torch.eye(2), torch.tensor([[0.0, 2.0]])]).mul(10).round().tolist()
    [[7.0, 7.0], [0.0, 10.0]]
    """
    features = torch.cat([function(part) for part in torch.cat(list(windows)).split(batch)])
    owner = torch.arange(len(windows)).repeat_interleave(torch.tensor([len(part) for part in windows]))
    return mean_directions(features, owner, len(windows))


def mean_directions(features: Float[Tensor, "k d"], owner: Int[Tensor, "k"], count: int) -> Float[Tensor, "n d"]:
    """Return the mean direction of the features of each sample.

    Args:
        features: Features of windows.
        owner: The sample of each window.
        count: Number of samples.

    >>> mean_directions(torch.eye(2), torch.tensor([0, 0]), 1).mul(10).round().tolist()
    [[7.0, 7.0]]
    """
    total = features.new_zeros(count, features.shape[1])
    return normalize(total.index_add(0, owner.to(features.device), normalize(features)))


def resize_samples(images: InMemory, preprocessing: PicturePreprocessing) -> InMemory:
    """Return images with the size, crop and channels of a preprocessing.

    The last four results are cached, because many runs share them.
    """
    return _resize(_CacheKey(images), preprocessing)


def with_statistics(preprocessing: PicturePreprocessing, samples: Samples) -> PicturePreprocessing:
    """Return the preprocessing with the mean and deviation per channel of samples that already have its size."""
    measured = Normalize.of(samples)
    mean, std = (tuple((value.flatten() / 255).tolist()) for value in (measured.mean, measured.scale))
    return preprocessing.with_statistics(mean, std)


class _CacheKey:
    """A dataset that is compared by the identity of its tensor."""

    def __init__(self, images: InMemory):
        self.images = images

    def __hash__(self) -> int:
        return hash(self.images.data.data_ptr())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CacheKey) and self.images.data is other.images.data


@functools.lru_cache(maxsize=4)
def _resize(key: _CacheKey, preprocessing: PicturePreprocessing) -> InMemory:
    images = key.images
    parts = [preprocessing.load(part) for part in images.data.split(1024)]
    return InMemory(torch.cat(parts).contiguous(), images.labels, images.classes)
