"""Pretraining without labels: two views of a picture belong together, and all pictures spread over the sphere."""

import copy
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from ...config import Call, as_call
from ...data import Augmentation, Compose, Loader
from ...data.samplers import Sampler
from ...data.streams import AUGMENT, Stream
from ...energy import alignment
from ...models import read_features
from ...objectives import Uniformity
from ...recognition import all_processes, extract_features
from ..datasets import Normalizer, Samples, append_normalization, as_samples
from .classification import save_embedder
from .task import Task, sum_losses

MAX_MEASURED = 512  # pictures with which alignment and uniformity are measured during training


class TwoViews(Augmentation):
    """An augmentation applied twice with different random numbers: each sample becomes a stack of two.

    Args:
        augment: Makes one view of a batch.

    >>> views = TwoViews(hs.data.Flip())(torch.arange(4.0).view(1, 1, 1, 4), torch.tensor([[0.1, 0.5, 0.9, 0.5]]))
    >>> views.shape, views[0, :, 0, 0].tolist()
    (torch.Size([1, 2, 1, 1, 4]), [[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
    """

    def __init__(self, augment: Augmentation):
        self.augment = augment

    def draws(self, shape: torch.Size) -> int:
        """Return the numbers of both views."""
        return 2 * self.augment.draws(shape)

    def __call__(self, batch: Shaped[Tensor, "b ..."], u: Float[Tensor, "b draws"]) -> Shaped[Tensor, "b 2 ..."]:
        """Return both views of each sample."""
        half = self.augment.draws(batch.shape[1:])
        return torch.stack([self.augment(batch, u[:, :half]), self.augment(batch, u[:, half:])], 1)


class Pretraining(Task):
    r"""Alignment of two views and uniformity of all (Wang and Isola, 2020, arXiv:2005.10242), without labels.

    .. math:: L = \operatorname{mean}_i ‖\hat x_i − \hat y_i‖^2 + w·\tfrac12\,[U(x) + U(y)]

    x_i and y_i are the features of two augmented views of picture i. Alignment alone would give all pictures the same features; the
    uniformity energy U pushes different pictures apart. With a ``teacher``, each view is aligned with the features that an
    exponential moving average of the network returns for the other view, so the target moves slowly (Grill et al., 2020,
    arXiv:2006.07733).

    Args:
        model: Network up to its features, or the call that builds it, which an embedder file can repeat.
        train: Samples; their labels are not used.
        measured: Samples to measure; up to 512 of the training samples if left out.
        uniformity: U, a module that is called with features: an energy such as ``FeatureEnergy(Heat())``, or an objective such as
            ``Uniformity``, the default, ``KoLeo`` or ``GlobalOrthogonalRegularization``.
        weight: w; 1 as in Wang and Isola.
        teacher: Decay of the teacher's average, such as 0.99; None aligns the views with each other.
        regularizers: Terms of the weights.
        batch_size: Pictures per batch, of all processes together; each is seen in two views.
        augment: Makes a view. Without one both views are equal, and only uniformity is learned.
        preprocessing: Converts stored samples to inputs; None if the samples are inputs.
        seed: Seed of batches and views.
        sampler: Another order of the samples.
        workers: Threads that read batches ahead of the step.

    Raises:
        ValueError: If a number is out of its range.

    >>> from hypersphere.training.tasks import Pretraining
    >>> pictures = hs.data.InMemory(torch.rand(20, 1, 4, 4), torch.zeros(20, dtype=torch.long), ("all",))
    >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 8))
    >>> task = Pretraining(network, pictures, augment=hs.data.CropFlip(pad=1), batch_size=10)
    >>> loss, parts = task(0, *next(iter(task.loader)))
    >>> list(parts), sorted(task.eval().evaluate())
    (['alignment', 'uniformity'], ['alignment', 'effective_rank', 'objective', 'uniformity'])
    """

    def __init__(
        self,
        model: nn.Module | Call | functools.partial[nn.Module],
        train: Any,
        measured: Any = None,
        *,
        uniformity: nn.Module | None = None,
        weight: float = 1.0,
        teacher: float | None = None,
        regularizers: Sequence[nn.Module] = (),
        batch_size: int = 128,
        augment: Augmentation | None = None,
        preprocessing: Normalizer | None = None,
        seed: int = 0,
        sampler: Sampler | None = None,
        workers: int = 0,
    ):
        super().__init__()
        if not 0 <= weight < float("inf"):
            raise ValueError(f"weight must be a finite number ≥ 0, got {weight!r}")
        if teacher is not None and not 0 < teacher < 1:
            raise ValueError(f"teacher must be a decay in (0, 1) or None, got {teacher!r}")
        if batch_size < 2:
            raise ValueError(f"batch_size must be an integer ≥ 2, because features are compared, got {batch_size!r}")
        self.train_samples = as_samples(train, "train")
        if len(self.train_samples) < 2:
            raise ValueError("train must contain at least two samples, because the loss compares different samples")
        self.measured_samples = self.train_samples if measured is None else as_samples(measured, "measured")
        self.network_call = as_call(model) if isinstance(model, Call | functools.partial) else None
        self.model = cast(nn.Module, model if self.network_call is None else self.network_call.build())
        self.uniformity = Uniformity() if uniformity is None else uniformity
        self.weight, self.decay, self.preprocessing = float(weight), teacher, preprocessing
        self.teacher = None if teacher is None else copy.deepcopy(self.model).requires_grad_(False)
        self.regularizers = nn.ModuleList(regularizers)
        self.views = TwoViews(append_normalization(augment, preprocessing) or Compose())
        self.seed = seed
        count = min(batch_size, len(self.train_samples))
        self.loader: Loader = Loader(
            self.train_samples, count, seed, drop_last=True, augment=self.views, sampler=sampler, workers=workers
        )

    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a batch of view pairs, and its parts."""
        first, second = batch[0].unbind(1)
        return sum_losses(self.compute_losses(first, second), self.regularizers)

    def compute_losses(self, first: Tensor, second: Tensor) -> dict[str, Tensor]:
        """Return alignment and uniformity for prepared inputs.

        Args:
            first: A view of each picture.
            second: Another view of each picture.
        """
        x, y = self.features(first), self.features(second)
        if self.teacher is None:
            aligned = alignment(x, y)
        else:
            with torch.no_grad():
                target_x, target_y = read_features(self.teacher, second), read_features(self.teacher, first)
            aligned = (alignment(x, target_x) + alignment(y, target_y)) / 2
        return {"alignment": aligned, "uniformity": self.weight * (self.uniformity(x) + self.uniformity(y)) / 2}

    def features(self, inputs: Tensor) -> Float[Tensor, "b d"]:
        """Return the embedding of a prepared batch."""
        return read_features(self.model, inputs)

    def advance(self, step: int) -> None:
        """Update the teacher's average and advance the schedules of the regularizers."""
        super().advance(step)
        if self.teacher is None:
            return
        assert self.decay is not None
        with torch.no_grad():
            for own, current in zip(self.teacher.state_dict().values(), self.model.state_dict().values(), strict=True):
                if own.is_floating_point():
                    own.lerp_(current.to(own.dtype), 1 - self.decay)
                else:
                    own.copy_(current)

    @torch.no_grad()
    def embed(self, samples: Samples, batch: int = 512) -> Float[Tensor, "n d"]:
        """Return features of samples on the CPU; several processes share the work and each returns all features."""
        read = lambda index: samples.batch(index)[0]  # noqa: E731
        return extract_features(self.embed_batch, read, len(samples), batch, group=all_processes())

    def embed_batch(self, raw: Tensor) -> Float[Tensor, "b d"]:
        """Return features of stored samples."""
        raw = raw.to(self.device)
        return self.features(raw if self.preprocessing is None else self.preprocessing.normalize(raw))

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return both terms for fixed views of the measured samples, their sum, and the effective rank of the features.

        The effective rank is exp of the entropy of the normalized eigenvalues of the second moment of the directions: it falls
        towards 1 if training collapses.
        """
        count = min(len(self.measured_samples), MAX_MEASURED)
        raw = self.measured_samples.batch(torch.arange(count))[0]
        draws = self.views.draws(raw.shape[1:])
        u = Stream(self.seed, AUGMENT, 1 << 30).uniforms(count * draws).reshape(count, draws)
        both = self.views(raw, u).to(self.device)
        x, y = (torch.cat([self.features(part) for part in view.split(256)]).float() for view in both.unbind(1))
        aligned, spread = alignment(x, y), self.weight * (self.uniformity(x) + self.uniformity(y)) / 2
        directions = nn.functional.normalize(x.double(), dim=1)
        share = torch.linalg.eigvalsh(directions.T @ directions / count).clamp_min(0)
        entropy = -torch.special.xlogy(share, share).sum()
        return {
            "objective": float(aligned + spread),
            "alignment": float(aligned),
            "uniformity": float(spread),
            "effective_rank": float(entropy.exp()),
        }

    def write_embedder(self, folder: pathlib.Path, weights: Mapping[str, Tensor]) -> str | None:
        """Write the embedder, from which ``fit weights=…`` starts; return the reason if that is impossible."""
        sample = self.measured_samples.batch(torch.arange(min(4, len(self.measured_samples))))[0]
        return save_embedder(self, weights, sample, folder / "embedder.safetensors")

    def summary(self) -> dict[str, Any]:
        """Return the number of samples and what was minimized."""
        return {
            "training samples": len(self.train_samples),
            "labels": "not used",
            "network": type(self.model).__name__,
            "uniformity": type(self.uniformity).__name__,
            "teacher": "none" if self.decay is None else f"moving average, decay {self.decay:g}",
        }
