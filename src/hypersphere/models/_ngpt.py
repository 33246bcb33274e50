r"""A transformer on the sphere (nGPT; Loshchilov et al., 2024): hidden states and weight vectors have length 1.

A layer moves the state towards its output by a learned step size: h ← norm(h + α(norm(layer(h)) − h)). The network needs
neither LayerNorm nor weight decay. :meth:`NGPT.renormalize_` normalizes the weights after each step of the optimizer.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import Unpack

from ..geometry import normalize
from .blocks import ActivationOption, Layers, make_layers
from .network import ConvOptions, Network, Options, make_pair
from .ngpt_layers import NGPTMLP, NGPTAttention, StepSize, renormalize_weights, step_towards


class NGPTBlock(nn.Module):
    r"""One layer: attention, then an MLP, each followed by a step on the sphere with its own α.

    Args:
        dim: Dimension of the hidden states.
        heads: Number of attention heads, a divisor of ``dim``.
        hidden: Hidden neurons of the gated MLP.
        layers: Factories of the Linear layers and of the activation.
        step: Initial value of α, about 1 / (number of layers).

    >>> block = NGPTBlock(8, 2, 16)
    >>> h = torch.nn.functional.normalize(torch.randn(3, 5, 8), dim=-1)
    >>> torch.allclose(block(h).norm(dim=-1), torch.ones(3, 5))
    True
    """

    def __init__(self, dim: int, heads: int, hidden: int, layers: Layers | None = None, step: float = 0.05):
        super().__init__()
        layers = make_layers(norm=None, activation=nn.SiLU, init="normal") if layers is None else layers
        self.attention, self.attention_step = NGPTAttention(dim, heads, layers), StepSize(dim, step)
        self.mlp, self.mlp_step = NGPTMLP(dim, hidden, layers), StepSize(dim, step)
        self.renormalize_()

    def forward(
        self,
        h: Float[Tensor, "batch tokens dim"],
        mask: Float[Tensor, "*#batch tokens tokens"] | None = None,
        rotation: Float[Tensor, "tokens half 2"] | None = None,
    ) -> Float[Tensor, "batch tokens dim"]:
        """Return the next states, of length 1.

        Args:
            h: States of length 1.
            mask: Values added to the attention scores.
            rotation: Rotary positions; see :func:`~hypersphere.models.ngpt_layers.make_rotation`.
        """
        h = step_towards(h, self.attention(h, mask, rotation), self.attention_step())
        return step_towards(h, self.mlp(h), self.mlp_step())

    @torch.no_grad()
    def renormalize_(self) -> None:
        """Normalize every weight vector of dimension ``dim`` in place.

        These are the rows of weights that read h, and the columns of weights whose output is added to h.
        """
        for layer, dim in (*self.attention.list_directions(), *self.mlp.list_directions()):
            renormalize_weights(layer, dim)


class NGPT(Network):
    r"""A vision transformer of nGPT blocks: patches are tokens on the sphere, and the feature is their mean direction.

    A token starts as norm(norm(W·patch) + position). The feature is the direction of the mean token times √dim, so its
    entries are of order one, as a plain classifier expects. With ``feature_dim`` a fully connected layer follows. Call
    :meth:`renormalize_` after every step of the optimizer; classification in ``hypersphere.training`` does so.

    Args:
        num_classes: None makes it a feature extractor.
        depth: Number of blocks.
        dim: Dimension of the hidden states, before it is multiplied by ``width``.
        heads: Number of attention heads, a divisor of ``dim``.
        hidden: Hidden neurons of the gated MLP, as a multiple of ``dim``. 8/3 gives as many parameters as 4 without a gate.
        patch: Side of a patch, a divisor of ``input_size``.
        step: Initial value of α; None stands for the larger of 1/``depth`` and 0.05.
        in_channels, input_size, feature_dim, last_activation: See :class:`~hypersphere.models.Options`.
        **options: See :class:`~hypersphere.models.ConvOptions`. ``activation`` is that of the gate, SiLU by default.
            ``norm`` is that of the patch embedding, none by default; the blocks have no normalization. The default
            initialization is N(0, 1), because all weights are normalized.

    Raises:
        ValueError: If the sizes do not fit together.

    >>> net = NGPT(10, depth=2, dim=16, heads=2, patch=4, input_size=8)
    >>> net(torch.zeros(2, 3, 8, 8)).shape, net.states(torch.zeros(2, 3, 8, 8)).shape
    (torch.Size([2, 10]), torch.Size([2, 4, 16]))
    """

    def __init__(
        self,
        num_classes: int | None = 10,
        *,
        depth: int = 6,
        dim: int = 192,
        heads: int = 3,
        hidden: float = 8 / 3,
        patch: int = 4,
        step: float | None = None,
        in_channels: int = 3,
        input_size: int | tuple[int, int] = 32,
        feature_dim: int | None = None,
        last_activation: ActivationOption = None,
        **options: Unpack[ConvOptions],
    ):
        super().__init__()
        tokens = _count_tokens(make_pair(input_size), patch)
        if min(depth, dim, heads) < 1 or dim % heads:
            raise ValueError(
                f"depth, dim and heads must be integers ≥ 1, heads a divisor of dim; got {depth}, {dim}, {heads}"
            )
        options.setdefault("norm", None)
        options.setdefault("activation", nn.SiLU)
        options.setdefault("init", "normal")
        layers = make_layers(**options)
        dim, neurons = heads * layers.scaled(dim // heads), layers.scaled(round(hidden * dim))
        self.input_shape = (in_channels, *make_pair(input_size))
        self.patches = layers.convolution(in_channels, dim, patch, patch, padding=0, activate=False, bias=False)
        self.positions = nn.Parameter(torch.randn(tokens, dim))
        step = max(1 / depth, 0.05) if step is None else step
        self.blocks = nn.ModuleList([NGPTBlock(dim, heads, neurons, layers, step) for _ in range(depth)])
        self.fc = nn.Identity() if feature_dim is None else layers.dense(dim, feature_dim)
        features = dim if feature_dim is None else feature_dim
        self.last_activation = make_layers(activation=last_activation).nonlinearity(features)
        self._add_classifier(features, num_classes, layers)
        self.renormalize_()

    def states(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch tokens dim"]:
        """Return the tokens after the last block, of length 1."""
        if tuple(x.shape[1:]) != self.input_shape:
            raise ValueError(
                f"images must have shape {self.input_shape} (channels, height, width), got {tuple(x.shape[1:])}; "
                "build the model with input_size= for other sizes"
            )
        h = normalize(normalize(self.patches(x).flatten(2).mT) + self.positions)
        for block in self.blocks:
            h = block(h)
        return h

    def features(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch features"]:
        """Return the direction of the mean token with length √dim, after the last layer if there is one."""
        h = normalize(self.states(x).mean(1))
        return self.last_activation(self.fc(h * math.sqrt(h.shape[-1])))

    @torch.no_grad()
    def renormalize_(self) -> None:
        """Normalize the weights of blocks, patches and positions in place. The classifier is not changed."""
        renormalize_weights(self.patches, 0)
        self.positions.copy_(normalize(self.positions))
        for block in self.blocks:
            assert isinstance(block, NGPTBlock)
            block.renormalize_()


class NGPTOptions(Options, total=False):
    """The arguments of :class:`NGPT`."""

    depth: int
    dim: int
    heads: int
    hidden: float
    patch: int
    step: float | None


def ngpt(num_classes: int | None = 10, **options: Unpack[NGPTOptions]) -> NGPT:
    """Build a transformer on the sphere for small images; see :class:`NGPT`.

    >>> net = ngpt(10, depth=2, dim=16, heads=2, input_size=8)
    >>> net(torch.randn(2, 3, 8, 8)).shape, net.features(torch.randn(2, 3, 8, 8)).shape
    (torch.Size([2, 10]), torch.Size([2, 16]))
    """
    return NGPT(num_classes, **options)


def _count_tokens(size: tuple[int, int], patch: int) -> int:
    if patch < 1 or size[0] % patch or size[1] % patch:
        raise ValueError(f"patch must be an integer ≥ 1 that divides the input_size {size}, got {patch!r}")
    return (size[0] // patch) * (size[1] // patch)
