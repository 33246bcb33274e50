"""Two players: a generator, and a discriminator with hyperspherical energy and spectral norm (D.7 of Liu, 2020)."""

import pathlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ... import plots
from ...data import Augmentation, Compose, Loader
from ...evaluation import frechet_distance
from ...models import Players
from ..datasets import NormalizeBatch, Normalizer, as_samples
from ..measures import layer_energies
from .task import Task, draw
from .unit_images import normalize_to_unit


class GAN(Task):
    """Generator and discriminator taking turns; the regularizers are the discriminator's.

    A step is one player's: ``turns`` steps of the discriminator, on the cost of eq. D.12, then one of the generator, on
    ``−log D(G(z))``. Measured by both losses on real and generated images and by ``frechet``: the Fréchet distance between
    the two in the space of the first principal components *of the pixels* of the measured images. It needs no other network,
    and its values say nothing beside scores in Inception features.

    Args:
        model: both players.
        train: images in [0, 1] to learn from.
        measured: images to compare generated ones with.
        regularizers: terms of the discriminator's weights.
        turns: steps of the discriminator before one of the generator.
        samples: generated and real images compared at every evaluation.
        components: principal components of the pixels in which they are compared.
        batch_size: of all processes together.
        augment: changes training batches at random.
        preprocessing: how stored samples become inputs, which must lie in [0, 1].
        seed: of batches, augmentation and latent vectors.

    >>> from hypersphere.training import GAN
    >>> images = hs.data.InMemory(torch.rand(16, 1, 8, 8), torch.zeros(16, dtype=torch.long), ("picture",))
    >>> task = GAN(hs.models.Players(1, 8, latent_dim=4, width=0.05), images, images, components=4)
    >>> task.generate(3).shape, list(task.eval().evaluate())
    (torch.Size([3, 1, 8, 8]), ['discriminator_loss', 'generator_loss', 'frechet'])
    """

    partial = True
    model: Players
    basis: Tensor
    centre: Tensor
    latest: Tensor

    def __init__(
        self,
        model: Players,
        train: Any,
        measured: Any,
        *,
        regularizers: Sequence[nn.Module] = (),
        turns: int = 1,
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
        train_samples, measured_samples = as_samples(train, "train"), as_samples(measured, "measured")
        self.preprocessing, self.turns, self.model = preprocessing, turns, model
        self.regularizers = nn.ModuleList(regularizers)
        normalization = None if preprocessing is None else NormalizeBatch(preprocessing)
        steps = [step for step in (augment, normalization) if step is not None]
        batch = min(batch_size, len(train_samples))
        chosen = Compose(*steps) if steps else None
        self.loader: Loader = Loader(train_samples, batch, seed, augment=chosen, drop_last=True)
        count = min(samples, len(measured_samples))
        self._facts = {"training samples": len(train_samples), "measured samples": count}
        self.measured = measured_samples.batch(torch.arange(count))[0]
        self._principal_components(self.shown(self.measured), components)
        self.register_buffer(
            "latest", torch.zeros(2)
        )  # the losses of both players, so that every row of the log has both

    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of the player whose turn it is; the other player's parameters receive nothing."""
        count, discriminator = len(batch[0]), self.model.discriminator
        if step % (self.turns + 1) < self.turns:
            with torch.no_grad():
                made = self.model.generator(self.latent(count))
            loss = self.discriminator_loss(2 * batch[0] - 1, made)
            terms = {name: value for r in self.regularizers for name, value in r.terms().items()}  # type: ignore[operator]
            who = 0
        else:
            frozen = {name: parameter.detach() for name, parameter in discriminator.named_parameters()}
            made = self.model.generator(self.latent(count))
            loss = -F.logsigmoid(torch.func.functional_call(discriminator, frozen, (made,))).mean()
            terms, who = {}, 1
        with torch.no_grad():
            self.latest[who] = loss
        parts = {"discriminator": self.latest[0].clone(), "generator": self.latest[1].clone(), **terms}
        return torch.stack([loss, *terms.values()]).sum(), parts

    def discriminator_loss(self, real: Tensor, made: Tensor) -> Tensor:
        """``−log D(x) − log(1 − D(G(z)))``, from logits."""
        discriminator = self.model.discriminator
        return -F.logsigmoid(discriminator(real)).mean() - F.logsigmoid(-discriminator(made)).mean()

    def latent(self, count: int) -> Float[Tensor, "count latent"]:
        """This process's share of the latent vectors that one process would draw."""
        world, rank = self.loader.world_size, self.loader.rank
        return torch.randn(count * world, self.model.latent_dim, device=self.device)[rank::world]

    def advance(self, step: int) -> None:
        """Projection bases move on."""
        for regularizer in self.regularizers:
            regularizer.step()  # type: ignore[operator]

    def generate(self, count: int) -> Float[Tensor, "count c h w"]:
        """Images of latent vectors that are the same at every evaluation."""
        z = torch.randn(count, self.model.latent_dim, generator=torch.Generator().manual_seed(0)).to(self.device)
        return torch.cat([self.model.generator(part) for part in z.split(256)])

    def evaluate(self) -> dict[str, float]:
        """Losses of both players, and how far generated images are from real ones."""
        real, made = self.shown(self.measured), self.generate(len(self.measured))
        losses = [
            (
                len(x) * torch.stack([self.discriminator_loss(x, g), -F.logsigmoid(self.model.discriminator(g)).mean()])
            ).double()
            for x, g in zip(real.split(256), made.split(256), strict=True)
        ]
        both = (torch.stack(losses).sum(0) / len(real)).tolist()
        distance = frechet_distance(self.project(real).cpu(), self.project(made).cpu())
        return {"discriminator_loss": both[0], "generator_loss": both[1], "frechet": distance}

    def measures(self) -> dict[str, float]:
        """Energy of the discriminator's layers."""
        return layer_energies(self.model.discriminator, **self.logged_energy)

    def shown(self, images: Tensor) -> Float[Tensor, "n c h w"]:
        """Images as the discriminator sees them, in [−1, 1]."""
        return 2 * normalize_to_unit(images.to(self.device), self.preprocessing, "GAN") - 1

    def project(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k"]:
        """Principal components."""
        return (images.flatten(1).float() - self.centre.to(images.device)) @ self.basis.to(images.device)

    @torch.no_grad()
    def pictures(self, folder: pathlib.Path) -> None:
        """A grid of generated images, each stretched to its own range."""
        draw(folder / "samples.png", plots.plot_filters, self.generate(64).cpu(), columns=8)

    def summary(self) -> dict[str, Any]:
        """Sizes of the training and measured sets."""
        return dict(self._facts)

    def _principal_components(self, images: Float[Tensor, "n c h w"], components: int) -> None:
        flat = images.flatten(1)
        self.centre = flat.mean(0)
        covariance = (flat - self.centre).double().T @ (flat - self.centre).double()
        self.basis = torch.linalg.eigh(covariance)[1].flip(1)[:, :components].float()
