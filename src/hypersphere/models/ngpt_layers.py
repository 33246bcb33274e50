r"""Layers of a transformer on the sphere (nGPT): attention, a gated perceptron, learned step sizes, rotary positions."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..geometry import normalize
from ..operators.attention_heads import join_heads, split_heads
from .blocks import Layers


def step_towards(
    h: Float[Tensor, "*batch dim"], target: Float[Tensor, "*batch dim"], alpha: float | Float[Tensor, " dim"]
) -> Float[Tensor, "*batch dim"]:
    r"""Return norm(h + α(norm(target) − h)): the state after a step towards the output of a layer.

    Args:
        h: States of length 1.
        target: Output of a layer; only its direction matters.
        alpha: Step size, one number or one per dimension.

    >>> step_towards(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 7.0]), 0.5)
    tensor([0.7071, 0.7071])
    """
    return normalize(h + alpha * (normalize(target) - h))


def make_rotation(
    tokens: int, dim: int, *, base: float = 10000.0, device: torch.device | None = None
) -> Float[Tensor, "tokens half 2"]:
    r"""Return cosines and sines of the angles position·base^{−2i/dim} of rotary positions (arXiv:2104.09864).

    Args:
        tokens: Number of positions.
        dim: Dimension of a head, an even number.
        base: Ratio of the longest to the shortest wavelength; the default is that of the paper.
        device: Device of the result.

    >>> make_rotation(3, 4)[0]
    tensor([[1., 0.],
            [1., 0.]])
    """
    frequencies = base ** -(torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim)
    angles = torch.arange(tokens, dtype=torch.float64, device=device)[:, None] * frequencies
    return torch.stack([angles.cos(), angles.sin()], -1).float()


def rotate_by_position(
    x: Float[Tensor, "batch heads tokens dim"], rotation: Float[Tensor, "tokens half 2"]
) -> Float[Tensor, "batch heads tokens dim"]:
    r"""Rotate each pair of dimensions (i, i + dim/2) by the angle of its position.

    The product of a rotated query and a rotated key depends only on the distance of their positions. Lengths do not change.

    Args:
        x: Queries or keys.
        rotation: From :func:`make_rotation`.

    >>> x = torch.ones(1, 1, 2, 2)
    >>> rotate_by_position(x, make_rotation(2, 2)).round(decimals=3)
    tensor([[[[ 1.0000,  1.0000],
              [-0.3010,  1.3820]]]])
    """
    first, second = x.chunk(2, -1)
    cos, sin = rotation.to(x.dtype).unbind(-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class StepSize(nn.Module):
    r"""Positive scales that are learned as fast as the weights: |s|·start·√dim, where s starts at 1/√dim.

    The entries of a direction of dimension ``dim`` are about 1/√dim. The parameter s has the same size, so one learning
    rate suits both (2.5 of arXiv:2410.01131).

    Args:
        size: Number of scales.
        start: Initial value of the scales.
        dim: Dimension of the hidden states; ``size`` if None.

    Raises:
        ValueError: If ``start`` is not positive.

    >>> StepSize(4, 0.05)()
    tensor([0.0500, 0.0500, 0.0500, 0.0500], grad_fn=<MulBackward0>)
    """

    def __init__(self, size: int, start: float, dim: int | None = None):
        super().__init__()
        if not start > 0:
            raise ValueError(f"the initial step α must be a number > 0, got {start!r}")
        self.start, self.dim = start, size if dim is None else dim
        self.s = nn.Parameter(torch.full((size,), 1 / math.sqrt(self.dim)))

    def forward(self) -> Float[Tensor, " size"]:
        """Return the scales."""
        return self.s.abs() * (self.start * math.sqrt(self.dim))


class NGPTAttention(nn.Module):
    r"""Attention by cosines: softmax(√d·(s∘q̂)·(s∘k̂)) v, where d is the dimension of a head and s is learned from 1.

    Args:
        dim: Dimension of the hidden states.
        heads: Number of heads, a divisor of ``dim``.
        layers: Factories of the Linear layers.
    """

    def __init__(self, dim: int, heads: int, layers: Layers):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (layers.dense(dim, dim, bias=False) for _ in range(4))
        self.scale = StepSize(dim, 1.0)

    def forward(
        self,
        h: Float[Tensor, "batch tokens dim"],
        mask: Float[Tensor, "..."] | None = None,
        rotation: Float[Tensor, "tokens half 2"] | None = None,
    ) -> Float[Tensor, "batch tokens dim"]:
        """Return the output of the attention. The caller uses only its direction.

        Args:
            h: States.
            mask: Values added to the scores.
            rotation: Rotary positions for :func:`rotate_by_position`.
        """
        scale = split_heads(self.scale()[None, None], self.heads)
        q, k, v = (split_heads(layer(h), self.heads) for layer in (self.query, self.key, self.value))
        if rotation is not None:
            q, k = (rotate_by_position(x, rotation) for x in (q, k))
        q, k = ((scale * normalize(x)).to(v.dtype) for x in (q, k))
        return self.out(join_heads(F.scaled_dot_product_attention(q, k, v, mask, scale=math.sqrt(q.shape[-1]))))

    def list_directions(self) -> list[tuple[nn.Module, int]]:
        """Return each layer with the axis of its weight vectors: 0 for rows that read h, 1 for columns that are added to h."""
        return [(self.query, 0), (self.key, 0), (self.value, 0), (self.out, 1)]


class NGPTMLP(nn.Module):
    r"""Gated perceptron W_o(s_u∘u · φ(√dim·s_v∘v)) with u = W_u·h and v = W_v·h; both scales are 1 at the start.

    The entries of v are cosines. The factor √dim brings them into a range where φ is not linear.

    Args:
        dim: Dimension of the hidden states.
        hidden: Number of hidden neurons.
        layers: Factories of the Linear layers and of φ, SiLU by default.
    """

    def __init__(self, dim: int, hidden: int, layers: Layers):
        super().__init__()
        self.up, self.gate = (layers.dense(dim, hidden, bias=False) for _ in range(2))
        self.out = layers.dense(hidden, dim, bias=False)
        self.activation = layers.nonlinearity(hidden)
        self.up_scale, self.gate_scale = (nn.Parameter(torch.ones(hidden)) for _ in range(2))

    def forward(self, h: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch tokens dim"]:
        """Return the output of the perceptron. The caller uses only its direction."""
        rows = h.flatten(0, 1)  # an activation with one slope per channel expects channels in the second dimension
        gate = self.activation(self.gate(rows) * (self.gate_scale * math.sqrt(h.shape[-1])))
        return self.out(self.up(rows) * self.up_scale * gate).view_as(h)

    def list_directions(self) -> list[tuple[nn.Module, int]]:
        """Return each layer with the axis of its weight vectors, as :meth:`NGPTAttention.list_directions` does."""
        return [(self.up, 0), (self.gate, 0), (self.out, 1)]


@torch.no_grad()
def renormalize_weights(layer: nn.Module, dim: int) -> None:
    """Normalize every row or column of the weights of a module in place.

    Orthogonal fine-tuning computes a weight from a frozen one. Such a weight is not changed, because a rotation keeps the
    lengths of rows.

    Args:
        layer: A layer, or a module with layers.
        dim: 0 for rows (filters of a convolution), 1 for columns.

    Raises:
        ValueError: If a weight is computed from a trained one, so it cannot be written.

    >>> linear = torch.nn.Linear(3, 2, bias=False)
    >>> renormalize_weights(linear, 0)
    >>> torch.allclose(linear.weight.norm(dim=1), torch.ones(2))
    True
    """
    for module in layer.modules():
        if parametrize.is_parametrized(module, "weight") and not _has_trained_original(module):
            continue
        weight = getattr(module, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim < 2:
            continue
        if not isinstance(weight, nn.Parameter):
            raise ValueError(
                f"renormalize_ needs weights that are parameters, but that of a {type(module).__name__} is computed; "
                "remove its parametrization, or exclude this layer when you parametrize the network"
            )
        rows = weight.flatten(1) if dim == 0 else weight.flatten(1).mT
        unit = normalize(rows)
        weight.copy_((unit if dim == 0 else unit.mT).reshape(weight.shape))


def _has_trained_original(module: nn.Module) -> bool:
    """Return whether a parametrized weight is computed from a parameter that is trained."""
    originals = module.parametrizations["weight"].parameters(recurse=False)  # type: ignore[index, union-attr]
    return any(p.requires_grad for p in originals)
