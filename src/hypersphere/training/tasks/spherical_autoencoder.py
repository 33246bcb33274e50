"""A variational autoencoder with codes on the sphere, trained on the evidence lower bound."""

import math
import pathlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ... import plots
from ...data import Augmentation, Loader
from ...energy import uniformity
from ...geometry import uniform
from ...geometry.distributions import log_sphere_area
from ...models import SphericalAutoencoder
from ..datasets import Normalizer, append_normalization, as_samples, normalize_to_unit
from .task import Task, draw, sum_losses

EVALUATION_BATCH = 256  # images


class SphericalVAE(Task):
    r"""Images as directions: the loss is −log p(x|z) + β·KL(q(z|x) ‖ uniform), in nats per image (arXiv:1804.00891).

    Metrics are the negative evidence lower bound (β = 1) with its two parts, the log-likelihood by importance sampling,
    log p(x) ≈ log (1/S)·Σ_s p(x|z_s)·p(z_s)/q(z_s|x), and the uniformity of the mean directions (smaller is more even).

    Args:
        model: Encoder and decoder.
        train: Images in [0, 1] to learn from.
        measured: Images to measure.
        regularizers: Terms of the weights, with ``terms`` and ``step``.
        beta: Weight of the divergence; 1 is the evidence lower bound.
        samples: Largest number of measured images.
        draws: Codes per image for the log-likelihood.
        batch_size: Images per batch, of all processes together.
        augment: Random changes of training batches.
        preprocessing: Converts stored samples to inputs, which must lie in [0, 1]; None if the samples are inputs.
        seed: Seed of batches and augmentation.

    Raises:
        ValueError: If inputs lie outside of [0, 1] or a number is out of range.

    >>> from hypersphere.training import SphericalVAE
    >>> images = hs.data.InMemory(torch.rand(16, 1, 8, 8), torch.zeros(16, dtype=torch.long), ("picture",))
    >>> task = SphericalVAE(hs.models.SphericalAutoencoder(1, 8, latent_dim=3, widths=(4, 8)), images, images)
    >>> list(task.eval().evaluate())
    ['negative_elbo', 'reconstruction', 'divergence', 'log_likelihood', 'concentration', 'uniformity']
    """

    model: SphericalAutoencoder

    def __init__(
        self,
        model: SphericalAutoencoder,
        train: Any,
        measured: Any = None,
        *,
        regularizers: Sequence[nn.Module] = (),
        beta: float = 1.0,
        samples: int = 1000,
        draws: int = 32,
        batch_size: int = 128,
        augment: Augmentation | None = None,
        preprocessing: Normalizer | None = None,
        seed: int = 0,
    ):
        super().__init__()
        if not (math.isfinite(beta) and beta >= 0):
            raise ValueError(f"beta must be a finite number ≥ 0, got {beta!r}")
        if min(samples, draws, batch_size) < 1:
            raise ValueError(
                f"samples, draws and batch_size must be integers ≥ 1, got {samples}, {draws}, {batch_size}"
            )
        train_samples = as_samples(train, "train")
        measured_samples = train_samples if measured is None else as_samples(measured, "measured")
        self.model, self.beta, self.draws = model, float(beta), draws
        self.regularizers = nn.ModuleList(regularizers)
        batch = min(batch_size, len(train_samples))
        self.loader = Loader(
            train_samples, batch, seed, augment=append_normalization(augment, preprocessing), drop_last=True
        )
        raw, labels = measured_samples.batch(torch.arange(min(samples, len(measured_samples))))
        self.measured, self.labels = normalize_to_unit(raw, preprocessing, type(self).__name__), labels
        self._facts = {"training samples": len(train_samples), "measured samples": len(self.measured)}

    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a batch, and its parts."""
        posterior = self.model.posterior(batch[0])
        parts = {
            "reconstruction": self.compute_reconstruction_loss(batch[0], posterior.sample()).mean(),
            "divergence": self.beta * posterior.divergence_from_uniform().mean(),
        }
        return sum_losses(parts, self.regularizers)

    def compute_reconstruction_loss(
        self, images: Float[Tensor, "batch c h w"], codes: Float[Tensor, "batch latent"]
    ) -> Float[Tensor, " batch"]:
        """Return −log p(x|z) of images in nats, the sum over Bernoulli pixels."""
        logits = self.model.decode(codes)
        return F.binary_cross_entropy_with_logits(logits, images, reduction="none").flatten(1).sum(1)

    @torch.no_grad()
    def estimate_log_likelihood(
        self, images: Float[Tensor, "batch c h w"], generator: torch.Generator | None = None
    ) -> Float[Tensor, " batch"]:
        """Estimate log p(x) by importance sampling. The estimate is too low on average and rises with ``draws``.

        The density of a power spherical posterior is 0 opposite to the mean, so its importance weights have a heavy tail. Those
        of a von Mises–Fisher posterior are bounded.
        """
        posterior, weights = self.model.posterior(images), []
        codes = posterior.sample(self.draws, generator=generator)
        log_ratios = -log_sphere_area(self.model.latent_dim) - posterior.log_density(codes)
        for part in codes.split(max(1, EVALUATION_BATCH // len(images))):
            repeated = images.expand(len(part), *images.shape).flatten(0, 1)
            losses = self.compute_reconstruction_loss(repeated, part.flatten(0, 1))
            weights.append(-losses.view(len(part), len(images)))
        return torch.logsumexp((torch.cat(weights) + log_ratios).double(), 0) - math.log(self.draws)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return the negative bound and its parts, the log-likelihood, the mean concentration and the uniformity of the codes."""
        source, rows, codes = torch.Generator(self.device).manual_seed(0), [], []
        for images in self.measured.to(self.device).split(EVALUATION_BATCH):
            posterior = self.model.posterior(images)
            reconstruction = self.compute_reconstruction_loss(images, posterior.sample(generator=source))
            divergence = posterior.divergence_from_uniform()
            parts = (reconstruction, divergence, self.estimate_log_likelihood(images, source), posterior.concentration)
            rows.append(torch.stack([part.double() for part in parts], 1))
            codes.append(posterior.mean.float())
        reconstruction, divergence, likelihood, concentration = torch.cat(rows).mean(0).tolist()
        return {
            "negative_elbo": reconstruction + divergence,
            "reconstruction": reconstruction,
            "divergence": divergence,
            "log_likelihood": likelihood,
            "concentration": concentration,
            "uniformity": float(uniformity(torch.cat(codes))) if len(self.measured) > 1 else 0.0,
        }

    @torch.no_grad()
    def pictures(self, folder: pathlib.Path) -> None:
        """Draw reconstructions below their images, images of uniform codes, and the codes if they have 2 or 3 dimensions."""
        images = self.measured[:16].to(self.device)
        both = torch.cat([images, self.model(images)]).cpu()
        draw(folder / "reconstructions.png", plots.plot_filters, both, columns=len(images))
        codes = uniform(64, self.model.latent_dim, generator=torch.Generator().manual_seed(0)).to(self.device)
        draw(folder / "samples.png", plots.plot_filters, self.model.decode(codes).sigmoid().cpu(), columns=8)
        dim = self.model.latent_dim
        if dim in (2, 3):
            features = torch.cat(
                [self.model.features(part.to(self.device)).cpu() for part in self.measured.split(EVALUATION_BATCH)]
            )
            projection = "3d" if dim == 3 else None
            draw(folder / "codes.png", plots.plot_features, features, self.labels, projection=projection)

    def summary(self) -> dict[str, Any]:
        """Return the sizes of the training and measured sets, and the distribution of the codes."""
        return {**self._facts, "posterior": self.model.distribution.__name__, "latent dimension": self.model.latent_dim}
