"""Generative adversarial training with the variants of the discriminator in table D.4 of Liu (2020)."""

import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ... import plots
from ...data import Augmentation, Loader
from ...evaluation import frechet_distance, inception_score
from ...geometry import norm
from ...models import Players
from ..datasets import Normalizer, append_normalization, as_samples, normalize_to_unit
from .task import Task, compute_layer_energies, draw

MAX_FITTED_IMAGES = 10_000  # training images to which classifier="discriminant" is fitted
ClassProbabilities = Callable[[Tensor], Tensor]  # images in [0, 1] → one row of class probabilities per image


class GAN(Task):
    """Generator and discriminator take turns; the regularizers are those of the discriminator (D.7 of Liu, 2020).

    Each step trains one player: ``turns`` steps of the discriminator with the cost of eq. D.12, then one step of the generator
    with ``−log D(G(z))``. Metrics are both losses on real and generated images, and ``frechet``, the Fréchet distance between
    them in the space of the first principal components *of the pixels* of the measured images. It needs no other network, and
    its values cannot be compared with distances of Inception features.

    The rows of table D.4 are settings: ``clip=0.01`` (weight clipping), ``gradient_penalty=10`` (GAN-GP), the same with
    ``objective=wasserstein`` (WGAN-GP), ``backbone.norm=batch`` or ``layer``, ``backbone.weight_norm=true``,
    ``backbone.spectral_norm=true`` (SN), ``energy=Orthonormality``, ``energy=MHE``, and MHE beside SN.

    Args:
        model: Both players.
        train: Images in [0, 1] to learn from.
        measured: Images to compare generated ones with.
        regularizers: Terms of the discriminator's weights.
        turns: Steps of the discriminator before one of the generator.
        objective: ``"standard"`` (D.12) or ``"wasserstein"``, D(G(z)) − D(x) without logarithms (arXiv:1701.07875).
        gradient_penalty: Weight of (‖∇D(x̂)‖ − 1)² at random points x̂ between real and generated images (arXiv:1704.00028,
            which uses 10); 0 is none.
        clip: Largest absolute value of a weight of the discriminator after its step; None is no limit.
        classifier: Adds ``inception_score`` to the measures. A function from images in [0, 1] to class probabilities, or
            ``"discriminant"``: Gaussian classes of equal covariance, fitted to the principal components of the training
            images.
        samples: Generated and real images compared at every evaluation.
        components: Principal components of the pixels in which they are compared.
        batch_size: Images per batch, of all processes together.
        augment: Random changes of training batches.
        preprocessing: Converts stored samples to inputs, which must lie in [0, 1]; None if the samples are inputs.
        seed: Seed of batches, augmentation and latent vectors.

    Raises:
        ValueError: If inputs lie outside of [0, 1] or an option is not accepted.

    >>> from hypersphere.training import GAN
    >>> images = hs.data.InMemory(torch.rand(16, 1, 8, 8), torch.zeros(16, dtype=torch.long), ("picture",))
    >>> task = GAN(hs.models.Players(1, 8, latent_dim=4, width=0.05), images, images, components=4)
    >>> task.generate(3).shape, list(task.eval().evaluate())
    (torch.Size([3, 1, 8, 8]), ['discriminator_loss', 'generator_loss', 'frechet'])
    """

    has_unused_parameters = True
    model: Players
    basis: Tensor
    center: Tensor
    latest: Tensor

    def __init__(
        self,
        model: Players,
        train: Any,
        measured: Any,
        *,
        regularizers: Sequence[nn.Module] = (),
        turns: int = 1,
        objective: Literal["standard", "wasserstein"] = "standard",
        gradient_penalty: float = 0.0,
        clip: float | None = None,
        classifier: ClassProbabilities | Literal["discriminant"] | None = None,
        samples: int = 1000,
        components: int = 64,
        batch_size: int = 128,
        augment: Augmentation | None = None,
        preprocessing: Normalizer | None = None,
        seed: int = 0,
    ):
        super().__init__()
        if min(turns, samples, components) < 1:
            raise ValueError(
                f"turns, samples and components must be integers ≥ 1, got {turns}, {samples}, {components}"
            )
        if objective not in ("standard", "wasserstein"):
            raise ValueError(f"objective must be 'standard' or 'wasserstein', got {objective!r}")
        if not (math.isfinite(gradient_penalty) and gradient_penalty >= 0):
            raise ValueError(f"gradient_penalty must be a finite number ≥ 0, got {gradient_penalty!r}")
        if clip is not None and not clip > 0:
            raise ValueError(f"clip must be a number > 0 or none, got {clip!r}")
        if isinstance(classifier, str) and classifier != "discriminant":
            raise ValueError(f"classifier must be a function, 'discriminant' or none, got {classifier!r}")
        self.objective, self.gradient_penalty, self.clip = objective, float(gradient_penalty), clip
        train_samples, measured_samples = as_samples(train, "train"), as_samples(measured, "measured")
        self.preprocessing, self.turns, self.model = preprocessing, turns, model
        self.regularizers = nn.ModuleList(regularizers)
        batch = min(batch_size, len(train_samples))
        self.loader: Loader = Loader(
            train_samples, batch, seed, augment=append_normalization(augment, preprocessing), drop_last=True
        )
        count = min(samples, len(measured_samples))
        self._facts = {"training samples": len(train_samples), "measured samples": count}
        self.measured = measured_samples.batch(torch.arange(count))[0]
        self._fit_principal_components(self.scale_images(self.measured), components)
        if classifier == "discriminant":
            fitted = train_samples.batch(torch.arange(min(len(train_samples), MAX_FITTED_IMAGES)))
            classifier = fit_gaussian_classes(self.project, (self.scale_images(fitted[0]) + 1) / 2, fitted[1])
        self.classifier = classifier
        # The last losses of both players. A step computes only one of them, but every row of the log has both.
        self.register_buffer("latest", torch.zeros(2))

    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of the player whose turn it is. The parameters of the other player receive no gradient."""
        count, discriminator, terms = len(batch[0]), self.model.discriminator, {}
        if step % (self.turns + 1) < self.turns:
            with torch.no_grad():
                made = self.model.generator(self.draw_latent(count))
            real, who = 2 * batch[0] - 1, 0
            loss = self.compute_discriminator_loss(real, made)
            if self.gradient_penalty:
                terms["gradient_penalty"] = self.gradient_penalty * self.penalize_gradients(real, made)
            for regularizer in self.regularizers:
                terms |= regularizer.terms()  # type: ignore[operator]
        else:
            frozen = {name: parameter.detach() for name, parameter in discriminator.named_parameters()}
            made = self.model.generator(self.draw_latent(count))
            loss, who = self.compute_generator_loss(torch.func.functional_call(discriminator, frozen, (made,))), 1
        with torch.no_grad():
            self.latest[who] = loss
        parts = {"discriminator": self.latest[0].clone(), "generator": self.latest[1].clone(), **terms}
        return torch.stack([loss, *terms.values()]).sum(), parts

    def compute_discriminator_loss(self, real: Tensor, made: Tensor) -> Tensor:
        """Return ``−log D(x) − log(1 − D(G(z)))`` from logits, or ``D(G(z)) − D(x)`` of the Wasserstein objective."""
        discriminator = self.model.discriminator
        if self.objective == "wasserstein":
            difference: Tensor = discriminator(made).mean() - discriminator(real).mean()
            return difference
        return -F.logsigmoid(discriminator(real)).mean() - F.logsigmoid(-discriminator(made)).mean()

    def compute_generator_loss(self, scores: Tensor) -> Tensor:
        """Return ``−log D(G(z))`` from the discriminator's scores of generated images, or ``−D(G(z))``."""
        return -(scores if self.objective == "wasserstein" else F.logsigmoid(scores)).mean()

    def penalize_gradients(self, real: Tensor, made: Tensor) -> Float[Tensor, ""]:
        """Return the mean of (‖∇D(x̂)‖ − 1)² at points drawn uniformly between pairs of real and generated images."""
        world, rank = self.loader.world_size, self.loader.rank
        share = torch.rand(len(real) * world, 1, 1, 1, device=real.device, dtype=real.dtype)[rank::world]
        points = torch.lerp(real, made, share).requires_grad_()
        scores = self.model.discriminator(points).sum()
        (slope,) = torch.autograd.grad(scores, points, create_graph=True)
        # The gradient of torch's norm is undefined at 0, where a discriminator with constant output would be.
        return (norm(slope.flatten(1)) - 1).square().mean()

    def draw_latent(self, count: int) -> Float[Tensor, "count latent"]:
        """Return the latent vectors of this process, a part of those that a single process would draw."""
        world, rank = self.loader.world_size, self.loader.rank
        return torch.randn(count * world, self.model.latent_dim, device=self.device)[rank::world]

    def advance(self, step: int) -> None:
        """Advance the regularizers, and clip the weights of the discriminator."""
        super().advance(step)
        if self.clip is not None:
            with torch.no_grad():
                for parameter in self.model.discriminator.parameters():
                    parameter.clamp_(-self.clip, self.clip)

    def generate(self, count: int) -> Float[Tensor, "count c h w"]:
        """Return images of fixed latent vectors, the same at every evaluation."""
        z = torch.randn(count, self.model.latent_dim, generator=torch.Generator().manual_seed(0)).to(self.device)
        return torch.cat([self.model.generator(part) for part in z.split(256)])

    def evaluate(self) -> dict[str, float]:
        """Return the losses of both players, the Fréchet distance, and the Inception score if there is a classifier."""
        real, made = self.scale_images(self.measured), self.generate(len(self.measured))
        losses = [
            len(x)
            * torch.stack(
                [self.compute_discriminator_loss(x, g), self.compute_generator_loss(self.model.discriminator(g))]
            ).double()
            for x, g in zip(real.split(256), made.split(256), strict=True)
        ]
        both = (torch.stack(losses).sum(0) / len(real)).tolist()
        distance = frechet_distance(self.project(real).cpu(), self.project(made).cpu())
        measures = {"discriminator_loss": both[0], "generator_loss": both[1], "frechet": distance}
        if self.classifier is not None:
            probabilities = torch.cat([self.classifier((part + 1) / 2) for part in made.split(256)])
            measures["inception_score"] = inception_score(probabilities, splits=min(10, len(made))).value
        return measures

    def measures(self) -> dict[str, float]:
        """Return the energies of the discriminator's layers."""
        return compute_layer_energies(self.model.discriminator, **self.logged_energy)

    def scale_images(self, images: Tensor) -> Float[Tensor, "n c h w"]:
        """Scale images to [−1, 1], the range of the discriminator's input."""
        return 2 * normalize_to_unit(images.to(self.device), self.preprocessing, "GAN") - 1

    def project(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k"]:
        """Return the principal components of images in [−1, 1]."""
        return (images.flatten(1).float() - self.center.to(images.device)) @ self.basis.to(images.device)

    @torch.no_grad()
    def pictures(self, folder: pathlib.Path) -> None:
        """Draw a grid of generated images, each stretched to its own range."""
        draw(folder / "samples.png", plots.plot_filters, self.generate(64).cpu(), columns=8)

    def summary(self) -> dict[str, Any]:
        """Return the sizes of the training and measured sets."""
        return dict(self._facts)

    def _fit_principal_components(self, images: Float[Tensor, "n c h w"], components: int) -> None:
        flat = images.flatten(1)
        self.center = flat.mean(0)
        covariance = (flat - self.center).double().T @ (flat - self.center).double()
        self.basis = torch.linalg.eigh(covariance)[1].flip(1)[:, :components].float()


def fit_gaussian_classes(
    project: Callable[[Tensor], Tensor], images: Float[Tensor, "n c h w"], labels: Int[Tensor, " n"]
) -> ClassProbabilities:
    """Return a classifier of images in [0, 1]: Gaussian classes of equal covariance in projected images.

    Its probabilities are softmax(x·Σ⁻¹·m_c − m_c·Σ⁻¹·m_c/2 + log share of c), linear discriminant analysis.

    Args:
        project: Features of images in [−1, 1].
        images: Images in [0, 1] to fit the classes to.
        labels: Their classes, two or more.

    Raises:
        ValueError: If there is one class only.
    """
    names, index, counts = labels.to(images.device).unique(return_inverse=True, return_counts=True)
    if len(names) < 2:
        raise ValueError("classifier=discriminant needs training images of two or more classes, got one")
    features = project(2 * images - 1).double()
    means = features.new_zeros(len(names), features.shape[1]).index_add_(0, index, features) / counts[:, None]
    within = (features - means[index]).T @ (features - means[index]) / len(features)
    within.diagonal().add_(1e-3 * within.diagonal().mean())
    weight = torch.linalg.solve(within, means.T)
    bias = (counts / len(features)).log() - 0.5 * (means * weight.T).sum(1)

    def classify(batch: Tensor) -> Tensor:
        return (project(2 * batch - 1).double() @ weight.to(batch.device) + bias.to(batch.device)).softmax(1)

    return classify
