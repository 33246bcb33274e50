"""A variational autoencoder whose latent codes lie on the unit sphere (arXiv:1804.00891)."""

import math
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..geometry import PowerSpherical, VonMisesFisher
from ..geometry.distributions import SphericalDistribution
from .blocks import ActivationOption, InitOption, NormOption, make_layers
from .network import make_pair

POSTERIORS: dict[str, type[SphericalDistribution]] = {
    "power_spherical": PowerSpherical,
    "von_mises_fisher": VonMisesFisher,
}


class SphericalAutoencoder(nn.Module):
    r"""A convolutional variational autoencoder with latent codes on the unit sphere.

    The encoder computes a mean direction and a concentration κ = 1 + softplus(…), as in arXiv:1804.00891. The prior is
    uniform on the sphere, so the Kullback–Leibler divergence depends on κ alone. A Gaussian prior pulls codes to the origin;
    the uniform prior spreads them over the sphere. Pixels are Bernoulli variables, and ``decode`` returns their logits.

    Args:
        in_channels: Channels of the images.
        input_size: Height and width, or one number for both; multiples of ``2 ** len(widths)``.
        latent_dim: Dimension d of the codes, which lie on the unit sphere in ℝᵈ; d = 3 can be plotted.
        posterior: ``"power_spherical"`` (closed forms, cheap samples) or ``"von_mises_fisher"``.
        widths: Number of filters of each convolution; each convolution halves height and width.
        norm, activation, init: See :class:`~hypersphere.models.LayerOptions`.

    Raises:
        ValueError: If a size or the name of the posterior is invalid.

    >>> model = SphericalAutoencoder(1, 8, latent_dim=3, widths=(8, 16))
    >>> posterior = model.posterior(torch.rand(5, 1, 8, 8))
    >>> posterior.mean.shape, model.decode(posterior.sample()).shape
    (torch.Size([5, 3]), torch.Size([5, 1, 8, 8]))
    """

    def __init__(
        self,
        in_channels: int = 1,
        input_size: int | tuple[int, int] = 28,
        *,
        latent_dim: int = 8,
        posterior: Literal["power_spherical", "von_mises_fisher"] = "power_spherical",
        widths: tuple[int, ...] = (32, 64),
        norm: NormOption = "batch",
        activation: ActivationOption = "relu",
        init: InitOption = "he",
    ):
        super().__init__()
        size, factor = make_pair(input_size), 2 ** len(widths)
        if posterior not in POSTERIORS:
            raise ValueError(f"posterior must be one of {', '.join(POSTERIORS)}, got {posterior!r}")
        if latent_dim < 2 or not widths or min(widths) < 1:
            raise ValueError(
                f"latent_dim must be an integer ≥ 2 and widths integers ≥ 1, got {latent_dim!r} and {widths!r}"
            )
        if size[0] % factor or size[1] % factor:
            raise ValueError(f"input_size must be a multiple of {factor} in both directions, got {size[0]}×{size[1]}")
        self.distribution, self.latent_dim = POSTERIORS[posterior], latent_dim
        down = make_layers(norm=norm, activation=activation, init=init)
        up = make_layers(conv=nn.ConvTranspose2d, norm=norm, activation=activation, init=init)
        self.encoder, channels = down.convolutions(in_channels, widths, 4, stride=2)
        map_shape = (channels, size[0] // factor, size[1] // factor)
        self.mean = nn.Linear(math.prod(map_shape), latent_dim)
        self.concentration = nn.Linear(math.prod(map_shape), 1)
        self.dense = nn.Sequential(
            nn.Linear(latent_dim, math.prod(map_shape)), nn.Unflatten(1, map_shape), up.nonlinearity(channels)
        )
        self.decoder, channels = up.convolutions(channels, reversed(widths), 4, stride=2)
        self.image = nn.Conv2d(channels, in_channels, 3, padding=1)

    def posterior(self, x: Float[Tensor, "batch channels height width"]) -> SphericalDistribution:
        """Return the posterior distribution of the code of each image."""
        maps = self.encoder(x).flatten(1)
        return self.distribution(self.mean(maps), 1 + F.softplus(self.concentration(maps)[:, 0]))

    def decode(self, code: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch channels height width"]:
        """Return the logits of the pixels for codes of length 1."""
        logits: Tensor = self.image(self.decoder(self.dense(code)))
        return logits

    def features(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch latent"]:
        """Return the mean directions, which are the embeddings of the images."""
        return self.posterior(x).mean

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch channels height width"]:
        """Return reconstructions from the mean directions, with pixels in (0, 1)."""
        return self.decode(self.features(x)).sigmoid()
