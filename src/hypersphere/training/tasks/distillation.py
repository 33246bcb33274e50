"""Distillation: a network learns to predict the features of a trained network for several rotations of an image."""

import math
import pathlib
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from typing_extensions import Unpack

from ...config import Call
from ...data import PicturePreprocessing, Preprocessing
from ...evaluation import fit_discriminant
from ...geometry import normalize, upcast
from ...geometry.numerics import disable_autocast
from ...objectives.engine.scores import MIN_NORM
from ...recognition import Embedder
from ..datasets import is_stream
from .classification import TaskOptions, get_file_preprocessing
from .open_set import OpenSet


class Distillation(OpenSet):
    r"""Features learn the directions of a teacher's features for the image and its rotations, concatenated.

    Let t(x) be the direction of the teacher's features of x, and T the rotation by 360°/K. The loss of a network f is the mean
    of 1 − cos(f(x), (t(x), t(Tx), …, t(T^{K−1}x))). The cosine of two features then estimates the mean of K cosines of the
    teacher at the price of one image (after Hinton et al. 2015, "Distilling the knowledge in a neural network"). Every image of
    a batch is used in all K rotations, so the teacher computes each of them once. With K = 1 this is ordinary distillation.
    Labels are not used, and the head is not trained.

    Args:
        teacher: a run or an embedder file. Its preprocessing must equal that of this task.
        turns: K: 1, 2, or 4 for square images. The features must have K times the teacher's dimensions.
        shrink: append the last layer of :func:`~hypersphere.evaluation.fit_discriminant` to the teacher, fitted to the training
            samples with each rotation of a class as a class of its own; None appends nothing.
        ways: classes of a one-shot episode, limited to the number of measured classes.
        published_runs: also measure the 20 published one-shot runs of Omniglot.

    Raises:
        ValueError: If the teacher, the preprocessing and the dimension of the features do not fit together.

    >>> from hypersphere.training import Distillation, call
    >>> network = call(hs.models.mlp, num_classes=None, input_size=4, hidden=(8,))
    >>> prepare = hs.data.PicturePreprocessing(size=(4, 4), channels=1, mean=0.0, std=1.0)
    >>> teacher = hs.recognition.Embedder(network.build(), prepare, network)
    >>> data = hs.data.InMemory(torch.rand(30, 1, 4, 4), torch.arange(30) % 3, "abc")
    >>> student = call(hs.models.mlp, num_classes=None, input_size=4, hidden=(32,))
    >>> task = Distillation(student, call(hs.objectives.Softmax), data, data, teacher=teacher, turns=4)
    >>> loss, parts = task(0, *next(iter(task.loader)))
    >>> list(parts), 0 < loss.item() < 2
    (['teacher'], True)
    """

    def __init__(
        self,
        model: nn.Module | Call,
        head: nn.Module | Call,
        train: Any,
        measured: Any = None,
        *,
        teacher: str | Embedder,
        turns: int = 1,
        shrink: float | None = None,
        ways: int = 20,
        published_runs: bool = False,
        **options: Unpack[TaskOptions],
    ):
        super().__init__(model, head, train, measured, ways=ways, published_runs=published_runs, **options)
        embedder = teacher if isinstance(teacher, Embedder) else Embedder.load(_get_embedder_file(teacher))
        sample = self.measured_samples.batch(torch.arange(1))[0]
        _check_teacher(embedder, get_file_preprocessing(self, sample), turns)
        self.turns = turns
        self.model.classifier.requires_grad_(False)
        # In a tuple, so that it is no submodule: it is neither trained nor saved with the student.
        self._teacher: tuple[Embedder, nn.Module] = embedder.eval().requires_grad_(False), nn.Identity()
        self.taught_by = embedder.fingerprint
        teacher_dim = self._compute_directions(self._normalize(sample)).shape[1]
        dim = self.summary()["features"]
        if dim != turns * teacher_dim:
            raise ValueError(
                f"the features must have {turns} × {teacher_dim} dimensions, those of the teacher in each turn, got {dim}"
            )
        if shrink is not None and is_stream(self.train_samples):
            raise ValueError(
                "shrink must be none if train is an iterable dataset: the last layer is fitted to all training samples"
            )
        if shrink is not None:
            self._teacher = embedder, self._fit_last_layer(shrink)

    def objectives(self, inputs: Float[Tensor, "b c h w"], labels: Int[Tensor, "b"]) -> dict[str, Tensor]:
        """Return the mean of 1 − cos over the images in all turns."""
        channels_last = inputs.is_contiguous(memory_format=torch.channels_last)
        turned = torch.cat([self._turn(inputs, k) for k in range(self.turns)])
        turned = turned.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
        features = normalize(upcast(self.features(turned)), min_norm=MIN_NORM)
        return {"teacher": 1 - (features * self._compute_targets(turned)).sum(1).mean()}

    def _turn(self, images: Tensor, k: int) -> Tensor:
        return images.rot90(k * 4 // self.turns, (2, 3))

    def _compute_targets(self, turned: Float[Tensor, "kb c h w"]) -> Float[Tensor, "kb d"]:
        """Return, for every image in every turn, the teacher's directions for this turn and the following ones."""
        each = self._compute_directions(turned).unflatten(0, (self.turns, -1))
        rows = [each.roll(-k, 0).transpose(0, 1).flatten(1) for k in range(self.turns)]
        return torch.cat(rows) / math.sqrt(self.turns)

    @torch.no_grad()
    def _compute_directions(self, images: Tensor) -> Float[Tensor, "b d"]:
        embedder, layer = self._teacher[0].to(images.device), self._teacher[1].to(images.device)
        features = upcast(embedder.of_inputs(images))
        with disable_autocast(images.device.type):
            return normalize(layer(features))

    @torch.no_grad()
    def _fit_last_layer(self, shrink: float, batch: int = 512) -> nn.Linear:
        samples, embedder = self.train_samples, self._teacher[0]

        def embed(index: Tensor, k: int) -> Tensor:
            return upcast(embedder.of_inputs(self._turn(self._normalize(samples.batch(index)[0]), k)))

        index = torch.arange(len(samples)).split(batch)
        turned = torch.cat([embed(part, k) for k in range(self.turns) for part in index])
        labels = torch.cat([samples.labels + k * self.num_classes for k in range(self.turns)])
        return fit_discriminant(turned, labels, shrink)


def _get_embedder_file(teacher: str) -> pathlib.Path:
    path = pathlib.Path(teacher)
    return path / "embedder.safetensors" if path.is_dir() else path


def _check_teacher(teacher: Embedder, preprocessing: Preprocessing | str, turns: int) -> None:
    if not isinstance(preprocessing, PicturePreprocessing):
        reason = preprocessing if isinstance(preprocessing, str) else f"samples are {preprocessing.medium}s"
        raise ValueError(f"a teacher needs images with the same preprocessing as its own; here {reason}")
    if turns not in (1, 2, 4) or (turns == 4 and preprocessing.size[0] != preprocessing.size[1]):
        raise ValueError(
            f"turns must be 1, 2, or, for square images, 4, got {turns!r} for images of {preprocessing.size}"
        )
    expected, own = teacher.preprocessing.to_dict(), preprocessing.to_dict()
    own["mirror"] = expected["mirror"]  # does not affect the teacher's input
    differences = [f"{k} {own[k]} instead of {expected[k]}" for k in own if not _is_close(own[k], expected[k])]
    if differences:
        raise ValueError(f"the preprocessing must equal the teacher's, got {', '.join(differences)}")


def _is_close(a: Any, b: Any) -> bool:
    """Return whether two values are equal up to the rounding error of statistics summed in another order."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_is_close, a, b))
    return math.isclose(a, b, rel_tol=1e-4) if isinstance(a, float) and isinstance(b, float) else a == b
