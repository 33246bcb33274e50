"""The GAN of table D.5 for 32×32 images, after spectrally normalized GANs (D.7)."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from typing_extensions import TypedDict, Unpack

from ..neurons import neuron_layers
from ..operators import Operator
from .blocks import ActivationOption, Conv, LayerFactory, NormOption, make_layers
from .network import ConvNet, Options, make_pair


class Generator(nn.Module):
    """The generator of table D.5(a): a dense layer to M×M×512, three 4×4 deconvolutions of stride 2, a 3×3 convolution.

    BatchNorm and ReLU follow each deconvolution. A deconvolution has no input patch and thus no angle, so there is no operator
    for it.

    Args:
        latent_dim: Dimension of ``z ~ N(0, I)``, 128 in the table.
        image_size: Height and width, a multiple of 8; the table's M is an eighth of it, 4 for CIFAR-10.
        out_channels: Channels of the image.
        linear, deconv, conv: Layer factories with torch.nn's signatures.
        norm, activation, width: See :class:`~hypersphere.models.LayerOptions`.

    >>> Generator(width=0.25)(torch.randn(2, 128)).shape
    torch.Size([2, 3, 32, 32])
    """

    def __init__(
        self,
        latent_dim: int = 128,
        *,
        image_size: int = 32,
        out_channels: int = 3,
        linear: LayerFactory = nn.Linear,
        deconv: LayerFactory = nn.ConvTranspose2d,
        conv: LayerFactory = nn.Conv2d,
        norm: NormOption = "batch",
        activation: ActivationOption = "relu",
        width: float = 1.0,
    ):
        super().__init__()
        if image_size < 8 or image_size % 8:
            raise ValueError(f"image_size must be a multiple of 8, got {image_size}")
        layers = make_layers(conv=deconv, linear=linear, norm=norm, activation=activation, init=None, width=width)
        self.latent_dim = latent_dim
        map_size, channels = image_size // 8, layers.scaled(512)
        self.dense = linear(latent_dim, channels * map_size * map_size)
        self.map = nn.Unflatten(1, (channels, map_size, map_size))
        self.body, channels = layers.convolutions(channels, (256, 128, 64), 4, stride=2)
        self.image = nn.Sequential(conv(channels, out_channels, 3, padding=1), nn.Tanh())

    def forward(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch channels size size"]:
        """Return images in (−1, 1)."""
        return self.image(self.body(self.map(self.dense(z))))


class GeneratorOptions(TypedDict, total=False):
    """The arguments of :class:`Generator`."""

    image_size: int
    out_channels: int
    linear: LayerFactory
    deconv: LayerFactory
    conv: LayerFactory
    norm: NormOption
    activation: ActivationOption
    width: float


def generator(latent_dim: int = 128, **options: Unpack[GeneratorOptions]) -> Generator:
    """Build the generator of table D.5(a); see :class:`Generator`.

    >>> generator(16, image_size=16, out_channels=1, width=0.25)(torch.randn(2, 16)).shape
    torch.Size([2, 1, 16, 16])
    """
    return Generator(latent_dim, **options)


def discriminator(
    *, spectral_norm: bool = False, weight_norm: bool = False, num_classes: int | None = 1, **options: Unpack[Options]
) -> ConvNet:
    """Build the discriminator of table D.5(b): seven 3×3 and 4×4 convolutions of 64 to 512 filters and ``dense → 1``.

    Leaky ReLU of slope 0.1, no normalization, torch's own initialization. The variants of table D.4 are options:
    ``spectral_norm``, ``weight_norm``, ``norm="batch"``, ``norm=layer_norm``; an ``operator`` makes its layers spherical.

    Args:
        spectral_norm: Divide the weight of every layer, including the last one, by its largest singular value (D.13).
        weight_norm: Learn direction and length of every neuron separately (Salimans and Kingma, 2016), also in the last layer.
        num_classes: Outputs; 1 for real or generated.
        **options: See :class:`~hypersphere.models.Options`.

    Raises:
        ValueError: If both normalizations of weights are set.

    >>> discriminator(width=0.25)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 1])
    """
    if spectral_norm and weight_norm:
        raise ValueError("spectral_norm and weight_norm cannot be combined, because both set the length of the weights")
    rows = [row for n in (64, 128, 256) for row in (Conv(n), Conv(n, kernel=4, stride=2))]
    options.setdefault("norm", None)
    options.setdefault("activation", "leaky_relu")
    options.setdefault("init", None)
    net = ConvNet([*rows, Conv(512)], num_classes, **options)
    for layer in neuron_layers(net).values():
        if spectral_norm:
            parametrizations.spectral_norm(layer)
        elif weight_norm:
            parametrizations.weight_norm(layer)
    return net


def layer_norm(channels: int) -> nn.GroupNorm:
    """Return layer normalization of maps: each sample over all its channels and positions, one scale per channel.

    >>> layer_norm(4)(torch.randn(2, 4, 3, 3)).mean((1, 2, 3)).abs().max() < 1e-5
    tensor(True)
    """
    return nn.GroupNorm(1, channels)


class Players(nn.Module):
    """Generator and discriminator for square images of one size, to be trained against each other (D.7).

    Args:
        in_channels: Channels of the images.
        input_size: Height and width, a multiple of 8.
        latent_dim: Dimension of ``z ~ N(0, I)``, 128 in table D.5.
        spectral_norm: Spectral norm of the discriminator's weights (D.13).
        weight_norm: Weight normalization of the discriminator.
        norm: Normalization of the discriminator's maps: ``"none"``, ``"batch"`` or ``"layer"`` (table D.4).
        operator: What the hidden layers of the discriminator compute, such as ``Operator()`` for SphereConv.
        width: Multiplies every hidden width of both.

    Raises:
        ValueError: If the images are not square or an option is not accepted.

    >>> players = Players(width=0.125)
    >>> images = players.generator(torch.randn(4, players.latent_dim))
    >>> images.shape, players.discriminator(images).shape
    (torch.Size([4, 3, 32, 32]), torch.Size([4, 1]))
    """

    def __init__(
        self,
        in_channels: int = 3,
        input_size: int | tuple[int, int] = 32,
        *,
        latent_dim: int = 128,
        spectral_norm: bool = False,
        weight_norm: bool = False,
        norm: Literal["none", "batch", "layer"] = "none",
        operator: Operator | None = None,
        width: float = 1.0,
    ):
        super().__init__()
        height, columns = make_pair(input_size)
        if height != columns:
            raise ValueError(f"input_size must be square, got {height}×{columns}: set size")
        norms: dict[str, NormOption] = {"none": None, "batch": "batch", "layer": layer_norm}
        if norm not in norms:
            raise ValueError(f"norm must be one of {', '.join(norms)}, got {norm!r}")
        self.latent_dim = latent_dim
        self.generator = generator(latent_dim, image_size=height, out_channels=in_channels, width=width)
        self.discriminator = discriminator(
            spectral_norm=spectral_norm,
            weight_norm=weight_norm,
            norm=norms[norm],
            operator=operator,
            in_channels=in_channels,
            input_size=height,
            width=width,
        )
