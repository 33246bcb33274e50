r"""Attention, perceptron and steps of a transformer on the sphere; what is learned beside weights is a scale."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..geometry import normalize
from ..operators.attention_heads import join_heads, split_heads
from .blocks import Layers


def toward(
    h: Float[Tensor, "*batch dim"], proposal: Float[Tensor, "*batch dim"], alpha: float | Float[Tensor, " dim"]
) -> Float[Tensor, "*batch dim"]:
    r"""norm(h + α(norm(proposal) − h)): the state turned part of the way towards a proposal.

    >>> toward(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 7.0]), 0.5)
    tensor([0.7071, 0.7071])
    """
    return normalize(h + alpha * (normalize(proposal) - h))


class StepSize(nn.Module):
    r"""α = |s|·start·√dim, one a dimension, with s = 1/√dim at the start, so that it learns as fast as the weights do.

    >>> StepSize(4, 0.05)()
    tensor([0.0500, 0.0500, 0.0500, 0.0500], grad_fn=<MulBackward0>)
    """

    def __init__(self, dim: int, start: float):
        super().__init__()
        if not start > 0:
            raise ValueError(f"the step α at the start must be a number > 0, got {start!r}")
        self.start = start
        self.s = nn.Parameter(torch.full((dim,), 1 / math.sqrt(dim)))

    def forward(self) -> Float[Tensor, " dim"]:
        """The step sizes as they are now."""
        return self.s.abs() * (self.start * math.sqrt(len(self.s)))


class NGPTAttention(nn.Module):
    r"""softmax(√d·(s∘q̂)·(s∘k̂)) v with d the dimension of a head, and s learned for each dimension, 1 at the start."""

    def __init__(self, dim: int, heads: int, layers: Layers):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (layers.dense(dim, dim, bias=False) for _ in range(4))
        self.scale = StepSize(dim, 1.0)

    def forward(
        self, h: Float[Tensor, "batch tokens dim"], mask: Tensor | None = None
    ) -> Float[Tensor, "batch tokens dim"]:
        """What attention proposes; the next step takes its direction only."""
        scale = split_heads(self.scale()[None, None], self.heads)
        q, k, v = (split_heads(layer(h), self.heads) for layer in (self.query, self.key, self.value))
        q, k = ((scale * normalize(x)).to(v.dtype) for x in (q, k))
        return self.out(join_heads(F.scaled_dot_product_attention(q, k, v, mask, scale=math.sqrt(q.shape[-1]))))

    def directions(self) -> list[tuple[nn.Module, int]]:
        """The layers, with the axis of the weight's vectors: 0 for rows, which read h, 1 for columns, which write it."""
        return [(self.query, 0), (self.key, 0), (self.value, 0), (self.out, 1)]


class NGPTMLP(nn.Module):
    r"""W_o(s_u∘u · φ(√dim·s_v∘v)) with u = W_u·h, v = W_v·h, φ = SiLU by default; both scales are 1 at the start.

    The entries of v are cosines; √dim brings them to where φ is not a straight line.
    """

    def __init__(self, dim: int, hidden: int, layers: Layers):
        super().__init__()
        self.up, self.gate = (layers.dense(dim, hidden, bias=False) for _ in range(2))
        self.out = layers.dense(hidden, dim, bias=False)
        self.activation = layers.nonlinearity(hidden)
        self.up_scale, self.gate_scale = (nn.Parameter(torch.ones(hidden)) for _ in range(2))

    def forward(self, h: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch tokens dim"]:
        """What the perceptron proposes; the next step takes its direction only."""
        rows = h.flatten(0, 1)  # an activation with a slope a channel has its channels second
        gate = self.activation(self.gate(rows) * (self.gate_scale * math.sqrt(h.shape[-1])))
        return self.out(self.up(rows) * self.up_scale * gate).view_as(h)

    def directions(self) -> list[tuple[nn.Module, int]]:
        """As those of :class:`NGPTAttention`."""
        return [(self.up, 0), (self.gate, 0), (self.out, 1)]


@torch.no_grad()
def renormalize_weights(layer: nn.Module, dim: int) -> None:
    """Length 1 for the rows (``dim`` 0; filters of a convolution) or the columns (1) of every weight inside, in place.

    A weight that is computed from a frozen one, as orthogonal fine-tuning does, stays as it is: a rotation keeps the
    lengths of rows.

    Raises:
        ValueError: if a weight is computed from one that learns, which nothing can be written to.

    >>> linear = torch.nn.Linear(3, 2, bias=False)
    >>> renormalize_weights(linear, 0)
    >>> torch.allclose(linear.weight.norm(dim=1), torch.ones(2))
    True
    """
    for module in layer.modules():
        if parametrize.is_parametrized(module, "weight") and not _learns(module):
            continue
        weight = getattr(module, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim < 2:
            continue
        if not isinstance(weight, nn.Parameter):
            raise ValueError(
                f"renormalize_ needs weights that are parameters, got a computed one in {type(module).__name__}; "
                "remove its parametrization, or leave this layer out of what parametrizes"
            )
        rows = weight.flatten(1) if dim == 0 else weight.flatten(1).mT
        unit = normalize(rows)
        weight.copy_((unit if dim == 0 else unit.mT).reshape(weight.shape))


def _learns(module: nn.Module) -> bool:
    """Whether what the weight is computed from is trained itself."""
    held = module.parametrizations["weight"]  # type: ignore[index, union-attr]
    return any(p.requires_grad for p in held.parameters(recurse=False))  # type: ignore[union-attr]
