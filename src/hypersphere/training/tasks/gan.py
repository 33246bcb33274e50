"""Two players: a generator, and a discriminator with hyperspherical energy and spectral norm (D.7)."""

import pathlib
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ... import models, plots
from ...data import InMemory, Loader
from ...evaluation import frechet_distance
from ..config import Config
from ..datasets import augmentation, load, normalization, prepared, training_part
from ..measures import layer_energies
from ..parts import Regularizers
from ..pictures import draw
from .base import Task


class GAN(Task):
    """The generator and discriminator of table D.5, taking turns; the regularisers of the config are the discriminator's.

    A step is one player's: ``players.turns`` steps of the discriminator, on the cost of eq. D.12, then one of the generator, on
    ``−log D(G(z))``. Measured by both losses on real and generated images and by ``frechet``: the Fréchet distance between the two in
    the space of the first principal components *of the pixels* of the measured images. It needs no other network, and its values say
    nothing beside scores in Inception features.
    """

    partial = True
    model: "Pair"
    basis: Tensor
    centre: Tensor
    latest: Tensor

    def __init__(self, config: Config):
        super().__init__(config)
        if config.data.normalize != "unit":
            raise ValueError(
                f"data.normalize must be unit for the task gan, whose images are made in (−1, 1), got {config.data.normalize}"
            )
        if config.players.turns < 1:
            raise ValueError(f"players.turns must be an integer ≥ 1, got {config.players.turns}")
        train, measured = load(config.data)
        train = training_part(config.data, train)
        self.normalize = normalization(config.data, train)
        self.model = Pair(config, train)
        self.regularizers = Regularizers(config.energy, config.orthogonal, self.model.discriminator, config.seed)
        batch = min(config.data.batch_size, len(train))
        augment = augmentation(config.data, self.normalize, train.data.shape[-1])
        self.loader: Loader = Loader(train, batch, config.seed, augment=augment, drop_last=True)
        self._facts = {"training samples": len(train), "measured samples": min(len(measured), config.players.samples)}
        self.measured = measured.data[: config.players.samples]
        self._principal_components(self.shown(self.measured))
        self.register_buffer(
            "latest", torch.zeros(2)
        )  # the losses of both players, so that every row of the log has both

    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of the player whose turn it is; the other player's parameters receive nothing."""
        turns, count = self.config.players.turns, len(batch[0])
        if step % (turns + 1) < turns:
            with torch.no_grad():
                made = self.model.generator(self.latent(count))
            loss = self.discriminator_loss(2 * batch[0] - 1, made)
            terms = self.regularizers()
            who = 0
        else:
            frozen = {name: parameter.detach() for name, parameter in self.model.discriminator.named_parameters()}
            made = self.model.generator(self.latent(count))
            loss = -F.logsigmoid(torch.func.functional_call(self.model.discriminator, frozen, (made,))).mean()
            terms = {name: torch.zeros_like(loss) for name in self.regularizers()}
            who = 1
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
        return torch.randn(count * world, self.config.players.latent_dim, device=self.device)[rank::world]

    def advance(self, step: int) -> None:
        """Projection bases move on."""
        self.regularizers.step()

    def generate(self, count: int) -> Float[Tensor, "count c h w"]:
        """Images of latent vectors that are the same at every evaluation."""
        z = torch.randn(count, self.config.players.latent_dim, generator=torch.Generator().manual_seed(0)).to(
            self.device
        )
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
        return layer_energies(self.model.discriminator)

    def shown(self, images: Tensor) -> Float[Tensor, "n c h w"]:
        """Images as the discriminator sees them, in [−1, 1]."""
        return 2 * prepared(images.to(self.device), self.normalize) - 1

    def project(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k"]:
        """Principal components."""
        return (images.flatten(1).float() - self.centre.to(images.device)) @ self.basis.to(images.device)

    @torch.no_grad()
    def pictures(self, folder: pathlib.Path) -> None:
        """A grid of generated images, each stretched to its own range."""
        draw(folder / "samples.png", plots.plot_filters, self.generate(64).cpu(), columns=8)

    def summary(self) -> dict[str, Any]:
        """Sizes."""
        return dict(self._facts)

    def _principal_components(self, images: Float[Tensor, "n c h w"]) -> None:
        flat = images.flatten(1)
        self.centre = flat.mean(0)
        covariance = (flat - self.centre).double().T @ (flat - self.centre).double()
        self.basis = torch.linalg.eigh(covariance)[1].flip(1)[:, : self.config.players.components].float()


class Pair(nn.Module):
    """Both players, for images of the size and channels of a dataset."""

    def __init__(self, config: Config, train: InMemory):
        super().__init__()
        _, channels, height, width = train.data.shape
        if height != width:
            raise ValueError(f"the images of a GAN must be square, got {height}×{width}: set data.size")
        self.generator = models.generator(
            config.players.latent_dim, image_size=height, out_channels=channels, width=config.model.width
        )
        self.discriminator = models.discriminator(
            spectral_norm=config.players.spectral_norm,
            in_channels=channels,
            input_size=height,
            width=config.model.width,
        )
