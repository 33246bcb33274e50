"""The convolutional autoencoder that decodes the angles or the norms of its code (figure 1.1 of Liu, 2020)."""

from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .. import operators
from ..angular import Angular, Cosine
from ..operators import magnitudes
from .blocks import ActivationOption, InitOption, NormOption, make_layers

Keep: TypeAlias = Literal["product", "angle", "norm"]


class Autoencoder(nn.Module):
    r"""Convolutions of stride 2 to a code and back. The decoder may see only cos θ or only ‖w‖‖x‖ of a code.

    The network is trained on inner products ‖w‖‖x‖·cos θ. Afterwards, with fixed weights, ``keep="angle"`` passes only cos θ
    of each filter and patch to the decoder, and ``keep="norm"`` only ‖w‖‖x‖. Liu (2020) finds that the angles reconstruct
    the image and the norms do not. Both are scaled by one factor per batch, the ratio of root mean squares, so the decoder
    sees numbers of the size that it was trained on. Figure 1.1 does not say how this is done.

    Args:
        in_channels: Channels of the images.
        widths: Filters of the convolutions; each halves height and width.
        code_channels: Filters of the 3×3 layer that computes the code.
        norm, activation, init: See :class:`~hypersphere.models.LayerOptions`.

    >>> net = Autoencoder(in_channels=1, widths=(8, 16), code_channels=4)
    >>> x = torch.rand(2, 1, 8, 8)
    >>> net.encode(x).shape, net(x, keep="angle").shape
    (torch.Size([2, 4, 2, 2]), torch.Size([2, 1, 8, 8]))
    """

    def __init__(
        self,
        in_channels: int = 3,
        *,
        widths: tuple[int, ...] = (32, 64),
        code_channels: int = 16,
        norm: NormOption = "batch",
        activation: ActivationOption = "relu",
        init: InitOption = "he",
    ):
        super().__init__()
        if not widths or min(widths) < 1 or code_channels < 1:
            raise ValueError(f"widths and code_channels must be integers ≥ 1, got {widths!r} and {code_channels!r}")
        down = make_layers(norm=norm, activation=activation, init=init)
        up = make_layers(conv=nn.ConvTranspose2d, norm=norm, activation=activation, init=init)
        self.encoder, channels = down.convolutions(in_channels, widths, 4, stride=2)
        self.code = operators.Conv2d(channels, code_channels, 3, padding=1, magnitude=magnitudes.InnerProduct())
        self.decoder, channels = up.convolutions(code_channels, reversed(widths), 4, stride=2)
        self.image = nn.Conv2d(channels, in_channels, 3, padding=1)

    def encode(
        self, x: Float[Tensor, "batch channels height width"], keep: Keep = "product"
    ) -> Float[Tensor, "batch code rows columns"]:
        """Return the code of images, or one factor of it.

        Args:
            x: Images. Height and width must be multiples of 2 to the power of the number of ``widths``.
            keep: ``"product"`` for ‖w‖‖x‖·cos θ, ``"angle"`` for cos θ, ``"norm"`` for ‖w‖‖x‖.

        Raises:
            ValueError: If ``keep`` is unknown or the size does not fit.
        """
        if keep not in ("product", "angle", "norm"):
            raise ValueError(f"keep must be 'product', 'angle' or 'norm', got {keep!r}")
        size = 2 ** len(self.encoder)
        if x.shape[-1] % size or x.shape[-2] % size:
            raise ValueError(f"height and width of images must be multiples of {size}, got {tuple(x.shape[-2:])}")
        maps = self.encoder(x)
        code = self.code(maps)
        return code if keep == "product" else _scale_like(self._compute_factor(maps, keep), code)

    def decode(self, code: Float[Tensor, "batch code rows columns"]) -> Float[Tensor, "batch channels height width"]:
        """Return the images of codes."""
        return self.image(self.decoder(code))

    def forward(
        self, x: Float[Tensor, "batch channels height width"], keep: Keep = "product"
    ) -> Float[Tensor, "batch channels height width"]:
        """Return reconstructions of images from their codes or one factor of them."""
        return self.decode(self.encode(x, keep))

    def _compute_factor(self, maps: Tensor, keep: Keep) -> Tensor:
        shape = self.code.in_channels, self.code.out_channels, self.code.kernel_size
        factors: dict[Keep, tuple[magnitudes.Magnitude, Angular]] = {
            "angle": (magnitudes.Sphere(), Cosine()),
            "norm": (magnitudes.InnerProduct(), _One()),
        }
        h, g = factors[keep]
        layer = operators.Conv2d(*shape, padding=1, bias=False, device="meta", magnitude=h, angular=g)
        layer.weight = self.code.weight
        return layer(maps)


class _One(Angular):
    """The angular function g = 1, with which an operator computes the magnitude alone."""

    def forward(self, cos: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
        """Return 1 for every cosine."""
        return torch.ones_like(cos)


def _scale_like(x: Tensor, other: Tensor) -> Tensor:
    """Return ``x`` scaled to the root mean square of another tensor."""
    return x * (other.square().mean() / x.square().mean().clamp_min(torch.finfo(x.dtype).tiny)).sqrt()
