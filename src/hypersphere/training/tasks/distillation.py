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
from .classification import TaskOptions, preprocessing_of
from .open_set import OpenSet


class Distillation(OpenSet):
    r"""Features learn the directions of a teacher's features for the image and its rotations, concatenated.

    With t(x) the teacher's direction of x and T the turn by 360°/K, the loss of a network f is the mean of
    1 − cos(f(x), (t(x), t(Tx), …, t(T^{K−1}x))). The cosine of two features is then the mean of the teacher's K cosines, for the price of
    one image (after Hinton et al. 2015, "Distilling the knowledge in a neural network"). Every image of a batch is learned in all of its
    turns, so that the teacher sees each of them once. With one turn this is plain distillation, such as of a large network into a small
    one. Labels are not used, and the head is not trained.

    Args:
        teacher: a run, or an embedder file, whose images are prepared as those of this task.
        turns: K, 1, 2 or 4 (for square images); the features must have K times the teacher's dimensions.
        shrink: append the last layer of :func:`~hypersphere.evaluation.fit_discriminant` to the teacher, fitted to the training samples, each
            turn of a class as a class of its own; none appends nothing.
        ways: classes of a one-shot episode, at most as many as are measured.
        published_runs: also answer the 20 published one-shot runs of Omniglot.

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
        embedder = teacher if isinstance(teacher, Embedder) else Embedder.load(_file(teacher))
        sample = self.measured_samples.batch(torch.arange(1))[0]
        _check(embedder, preprocessing_of(self, sample), turns)
        self.turns = turns
        self.model.classifier.requires_grad_(False)
        # Kept outside the module's state: it is not learned, and not saved with the student.
        self._teacher: tuple[Embedder, nn.Module] = embedder.eval().requires_grad_(False), nn.Identity()
        self.taught_by = embedder.fingerprint
        theirs, own = self._directions(self._normalize(sample)).shape[1], self.summary()["features"]
        if own != turns * theirs:
            raise ValueError(
                f"the features must have {turns} × {theirs} dimensions, those of the teacher in each turn, got {own}"
            )
        if shrink is not None and is_stream(self.train_samples):
            raise ValueError(
                "shrink must be none where the training samples are iterated over: the last layer is fitted to all of them"
            )
        if shrink is not None:
            self._teacher = embedder, self._last_layer(shrink)

    def objectives(self, inputs: Float[Tensor, "b c h w"], labels: Int[Tensor, "b"]) -> dict[str, Tensor]:
        """Return the mean of 1 − cos over the images in all turns."""
        by_pixel = inputs.is_contiguous(memory_format=torch.channels_last)
        turned = torch.cat([self._turn(inputs, k) for k in range(self.turns)])
        turned = turned.contiguous(memory_format=torch.channels_last if by_pixel else torch.contiguous_format)
        features = normalize(upcast(self.features(turned)), min_norm=MIN_NORM)
        return {"teacher": 1 - (features * self._compute_targets(turned)).sum(1).mean()}

    def _turn(self, images: Tensor, k: int) -> Tensor:
        return images.rot90(k * 4 // self.turns, (2, 3))

    def _compute_targets(self, turned: Float[Tensor, "kb c h w"]) -> Float[Tensor, "kb d"]:
        """Return the teacher's directions for every image in every turn, followed by those of the next turns."""
        each = self._directions(turned).unflatten(0, (self.turns, -1))
        rows = [each.roll(-k, 0).transpose(0, 1).flatten(1) for k in range(self.turns)]
        return torch.cat(rows) / math.sqrt(self.turns)

    @torch.no_grad()
    def _directions(self, images: Tensor) -> Float[Tensor, "b d"]:
        embedder, layer = self._teacher[0].to(images.device), self._teacher[1].to(images.device)
        features = upcast(embedder.of_inputs(images))
        with disable_autocast(images.device.type):
            return normalize(layer(features))

    @torch.no_grad()
    def _last_layer(self, shrink: float, batch: int = 512) -> nn.Linear:
        samples, embedder = self.train_samples, self._teacher[0]

        def features(index: Tensor, k: int) -> Tensor:
            return upcast(embedder.of_inputs(self._turn(self._normalize(samples.batch(index)[0]), k)))

        index = torch.arange(len(samples)).split(batch)
        turned = torch.cat([features(part, k) for k in range(self.turns) for part in index])
        labels = torch.cat([samples.labels + k * self.num_classes for k in range(self.turns)])
        return fit_discriminant(turned, labels, shrink)


def _file(teacher: str) -> pathlib.Path:
    path = pathlib.Path(teacher)
    return path / "embedder.safetensors" if path.is_dir() else path


def _check(teacher: Embedder, prepared: Preprocessing | str, turns: int) -> None:
    if not isinstance(prepared, PicturePreprocessing):
        reason = prepared if isinstance(prepared, str) else f"{prepared.medium}s are prepared"
        raise ValueError(f"a teacher needs images that are prepared as its own; here {reason}")
    if turns not in (1, 2, 4) or (turns == 4 and prepared.size[0] != prepared.size[1]):
        raise ValueError(
            f"turns must be 1, 2, or 4 where images are square, got {turns!r} for images of {prepared.size}"
        )
    theirs, own = teacher.preprocessing.to_dict(), prepared.to_dict()
    own["mirror"] = theirs["mirror"]  # does not affect the teacher's input
    other = [f"{k} {own[k]} where the teacher has {theirs[k]}" for k in own if not _alike(own[k], theirs[k])]
    if other:
        raise ValueError(f"images must be prepared as the teacher's, got {', '.join(other)}")


def _alike(a: Any, b: Any) -> bool:
    """Return whether two values are equal up to the rounding of statistics that were summed in another order."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    return math.isclose(a, b, rel_tol=1e-4) if isinstance(a, float) and isinstance(b, float) else a == b
