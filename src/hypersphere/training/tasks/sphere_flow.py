"""Flow matching on the sphere: learn a velocity field that carries uniform points to data."""

import pathlib
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ... import plots
from ...data import Loader
from ...evaluation import energy_distance
from ...geometry import normalize, uniform
from ...models import SphereVelocity
from ...models.velocity_field import geodesic_velocity, integrate_flow
from ..datasets import Normalizer, append_normalization, as_samples
from .task import Task, draw, sum_losses


class SphereFlow(Task):
    r"""A generative model of directions: E‖v(x_t, t) − dx_t/dt‖² over arcs from uniform points to data (arXiv:2302.03660).

    A sample is flattened and divided by its length. An image thus becomes a point of the sphere, without its brightness.
    Metrics are the same error on measured data, with fixed points and times, and the energy distance between generated and
    measured points.

    Args:
        model: The velocity field.
        train: Samples of any shape, none of length 0.
        measured: Samples to compare generated ones with.
        regularizers: Terms of the weights, with ``terms`` and ``step``.
        samples: Largest number of measured points and of generated points.
        integration_steps: Steps of the exponential map from t = 0 to t = 1.
        batch_size: Points per batch, of all processes together.
        preprocessing: Converts stored samples to inputs; None if the samples are inputs.
        seed: Seed of the batches.

    Raises:
        ValueError: If a measured sample has length 0 or a number is out of range.

    >>> from hypersphere.training import SphereFlow
    >>> points = hs.data.InMemory(torch.randn(20, 3), torch.zeros(20, dtype=torch.long), ("point",))
    >>> task = SphereFlow(hs.models.SphereVelocity(3, hidden=8), points, points, integration_steps=4)
    >>> task.generate(5).norm(dim=1).round(decimals=4), list(task.eval().evaluate())
    (tensor([1., 1., 1., 1., 1.]), ['matching_loss', 'energy_distance'])
    """

    model: SphereVelocity

    def __init__(
        self,
        model: SphereVelocity,
        train: Any,
        measured: Any = None,
        *,
        regularizers: Sequence[nn.Module] = (),
        samples: int = 500,
        integration_steps: int = 50,
        batch_size: int = 128,
        preprocessing: Normalizer | None = None,
        seed: int = 0,
    ):
        super().__init__()
        if min(samples, integration_steps, batch_size) < 1:
            raise ValueError(
                "samples, integration_steps and batch_size must be integers ≥ 1, got "
                f"{samples}, {integration_steps}, {batch_size}"
            )
        train_samples = as_samples(train, "train")
        measured_samples = train_samples if measured is None else as_samples(measured, "measured")
        self.model, self.integration_steps = model, integration_steps
        self.regularizers = nn.ModuleList(regularizers)
        batch = min(batch_size, len(train_samples))
        augment = append_normalization(None, preprocessing)
        self.loader: Loader = Loader(train_samples, batch, seed, augment=augment, drop_last=True)
        raw, self.labels = measured_samples.batch(torch.arange(min(samples, len(measured_samples))))
        inputs = raw if preprocessing is None else preprocessing.normalize(raw)
        self.shape = tuple(inputs.shape[1:])
        self.measured = normalize(inputs.flatten(1).float())
        if bool((self.measured == 0).all(1).any()):
            raise ValueError("measured samples must have a direction, got one of length 0")
        self._facts = {"training samples": len(train_samples), "measured samples": len(self.measured)}

    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean squared error of the velocity at random times of random arcs, and its parts."""
        points = normalize(batch[0].flatten(1).float())
        world, rank = self.loader.world_size, self.loader.rank
        start = uniform(len(points) * world, points.shape[1], device=points.device)[rank::world]
        t = torch.rand(len(points) * world, device=points.device)[rank::world]
        return sum_losses({"objective": self.compute_matching_loss(start, points, t)}, self.regularizers)

    def compute_matching_loss(
        self, start: Float[Tensor, "batch dim"], end: Float[Tensor, "batch dim"], t: Float[Tensor, " batch"]
    ) -> Float[Tensor, ""]:
        """Return the mean of ‖v(x_t, t) − dx_t/dt‖² over arcs from ``start`` to ``end``."""
        x, velocity = geodesic_velocity(start, end, t)
        error: Tensor = self.model(x, t) - velocity
        return error.square().sum(1).mean()

    @torch.no_grad()
    def generate(self, count: int, seed: int = 0) -> Float[Tensor, "count dim"]:
        """Return generated points: uniform points moved along the flow, the same for the same seed."""
        start = uniform(count, self.model.in_features, generator=torch.Generator().manual_seed(seed))
        return integrate_flow(self.model, start.to(self.device), steps=self.integration_steps)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return the error on measured data, and the energy distance between generated and measured points."""
        source, points = torch.Generator().manual_seed(1), self.measured.to(self.device)
        start = uniform(len(points), points.shape[1], generator=source).to(self.device)
        t = torch.rand(len(points), generator=source).to(self.device)
        generated = self.generate(len(points))
        return {
            "matching_loss": float(self.compute_matching_loss(start, points, t)),
            "energy_distance": energy_distance(generated, points),
        }

    @torch.no_grad()
    def pictures(self, folder: pathlib.Path) -> None:
        """Draw generated points beside measured ones on the circle or sphere, or generated images if samples are images."""
        dim = self.model.in_features
        if dim in (2, 3):
            points = torch.cat([self.measured.cpu(), self.generate(len(self.measured)).cpu()])
            origin = torch.arange(2).repeat_interleave(len(self.measured))
            options: dict[str, Any] = {"names": ["measured", "generated"], "projection": "3d" if dim == 3 else None}
            draw(folder / "samples.png", plots.plot_features, points, origin, **options)
        elif len(self.shape) == 3:
            images = self.generate(64).cpu().unflatten(1, self.shape).clamp_min(0)
            draw(folder / "samples.png", plots.plot_filters, images, columns=8)

    def summary(self) -> dict[str, Any]:
        """Return the sizes of the training and measured sets."""
        return {**self._facts, "dimension": self.model.in_features}
