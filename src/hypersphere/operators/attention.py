r"""Cosine attention: scores are cosines of the angles between queries and keys, and projections are operators."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..angular import AngularLike
from ..geometry import normalize
from .attention_heads import additive_mask, join_heads, put_batch_first, split_heads
from .linear import Linear
from .magnitudes import Magnitude, MagnitudeLike
from .operator_layer import OperatorLayer, apply_operator, bind_to_weight


def cosine_attention(
    query: Float[Tensor, "*batch queries dim"],
    key: Float[Tensor, "*batch keys dim"],
    value: Float[Tensor, "*batch keys out"],
    scale: float | Float[Tensor, "*heads 1 1"],
    mask: Float[Tensor, "*#batch #queries #keys"] | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Float[Tensor, "*batch queries out"], Float[Tensor, "*batch queries keys"] | None]:
    r"""Compute attention by angles, softmax_j(s·cos θ(q_i, k_j) + mask_ij) v_j, with an inverse temperature s.

    The scores lie in [−s, s] for queries and keys of any length, so a long vector cannot dominate. A zero query or key
    counts as orthogonal to all others.

    Args:
        query: The queries, per head, tokens before dimensions.
        key: The keys, in the same layout.
        value: The values, in the same layout.
        scale: s, one number or one per head.
        mask: Added to the scores; −∞ excludes a pair.
        dropout: Share of the weights that are dropped.
        need_weights: Whether to return the weights. The fused kernel, which does not store them, is then not used.

    Returns:
        The weighted values, and the weights or None.

    >>> q, k = torch.tensor([[5.0, 0.0]]), torch.tensor([[9.0, 0.0], [0.0, 1.0]])
    >>> cosine_attention(q, k, torch.eye(2), math.log(3.0))[0]
    tensor([[0.7500, 0.2500]])
    """
    q, k = normalize(query) * scale, normalize(key)
    q, k = q.to(value.dtype), k.to(value.dtype)
    if not need_weights:
        return F.scaled_dot_product_attention(q, k, value, mask, dropout, scale=1.0), None
    scores = q @ k.mT
    weights = (scores if mask is None else scores + mask).softmax(-1)
    weights = F.dropout(weights, dropout) if dropout else weights
    return weights @ value, weights


@dataclass(frozen=True)
class AttentionScale:
    """Inverse temperature s of cosine attention, one per head.

    Args:
        start: Initial value of s; None is √(dimension of a head), which gives scores about as large as those of random
            queries and keys in plain attention.
        learnable: Whether s is learned. If not, the ``state_dict`` has no new entry.

    >>> layer = CosineAttention(8, 2, scale=AttentionScale(10.0))
    >>> layer.log_scale.exp().detach().round()
    tensor([10., 10.])
    >>> CosineAttention(8, 2, scale=AttentionScale(10.0, learnable=False)).log_scale is None
    True
    """

    start: float | None = None
    learnable: bool = True

    def __post_init__(self) -> None:
        if self.start is not None and not 0 < self.start < math.inf:
            raise ValueError(f"start of an attention's scale must be a number > 0 or None, got {self.start!r}")


class AttentionOperator(OperatorLayer):
    """Mixin for ``nn.MultiheadAttention`` and classes that inherit its forward.

    ``magnitude`` and ``angular`` belong to the projection of the queries, and ``key_value`` holds those of keys and values.
    The projection of the outputs is the separate layer ``out_proj``, plain or an operator.
    """

    num_heads: int
    head_dim: int
    batch_first: bool
    dropout: float
    add_zero_attn: bool
    out_proj: Any
    in_proj_weight: Any
    in_proj_bias: Any
    bias_k: Any
    bias_v: Any

    def decouple(
        self,
        magnitude: MagnitudeLike | None = None,
        angular: AngularLike | None = None,
        scale: AttentionScale | None = None,
    ) -> None:
        """Set h, g and s. Their parameters are created for this layer's weights."""
        scale = AttentionScale() if scale is None else scale
        (self.magnitude, self.angular), *key_value = [
            bind_to_weight(magnitude, angular, weight, self.default_magnitude) for weight, _ in self._get_projections()
        ]
        self.key_value = nn.ModuleList([nn.ModuleList(pair) for pair in key_value])
        self.scale = scale
        self.start = math.sqrt(self.head_dim) if scale.start is None else scale.start
        weight, _ = self._get_projections()[0]
        logs = torch.full((self.num_heads,), math.log(self.start), dtype=weight.dtype, device=weight.device)
        self.log_scale = nn.Parameter(logs) if scale.learnable else None

    def couple(self) -> None:
        """Remove the attributes that :meth:`decouple` added."""
        super().couple()
        del self.key_value, self.scale, self.start, self.log_scale

    def decoupled_weights(self) -> Iterator[tuple[str, Tensor, Magnitude]]:
        """Yield the weights of the three projections, each with its attribute name and its magnitude."""
        magnitudes = [self.magnitude, *(pair[0] for pair in self.key_value)]  # type: ignore[index]
        if self.in_proj_weight is not None:
            yield "in_proj_weight", self.in_proj_weight, self.magnitude
        else:
            for part, magnitude in zip("qkv", magnitudes, strict=True):
                yield f"{part}_proj_weight", getattr(self, f"{part}_proj_weight"), magnitude

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Apply attention. Arguments and results are those of ``nn.MultiheadAttention``; ``is_causal`` needs ``attn_mask``."""
        if is_causal and attn_mask is None:
            raise ValueError("is_causal is a hint about attn_mask, which must be given with it; got None")
        inputs = [put_batch_first(x, self.batch_first) for x in (query, key, value)]
        q, k, v = (self._project(i, x) for i, x in enumerate(inputs))
        mask = additive_mask(attn_mask, key_padding_mask, len(q), self.num_heads, q.dtype)
        if self.bias_k is not None:
            k, v = (
                torch.cat([x, b.expand(len(x), 1, -1).to(x.dtype)], 1) for x, b in ((k, self.bias_k), (v, self.bias_v))
            )
        if self.add_zero_attn:
            k, v = (F.pad(x, (0, 0, 0, 1)) for x in (k, v))
        if mask is not None:  # the keys appended above are never masked
            mask = F.pad(mask, (0, k.shape[1] - mask.shape[-1]))
        q, k, v = (split_heads(x, self.num_heads) for x in (q, k, v))
        scale = self.start if self.log_scale is None else self.log_scale.exp()[:, None, None]
        dropout = self.dropout if self.training else 0.0
        out, weights = cosine_attention(q, k, v, scale, mask, dropout, need_weights)
        out = self.out_proj(join_heads(out))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if query.dim() == 2:
            return out[0], None if weights is None else weights[0]
        return out if self.batch_first else out.transpose(0, 1), weights

    def _project(self, part: int, x: Tensor) -> Tensor:
        pairs = [(self.magnitude, self.angular), *self.key_value]
        magnitude, angular = pairs[part]
        weight, bias = self._get_projections()[part]
        return apply_operator(x, weight, bias, magnitude, angular)

    def _get_projections(self) -> list[tuple[Tensor, Tensor | None]]:
        """Return weight and bias of queries, keys and values."""
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return list(zip(weights, biases, strict=True))


class CosineAttention(AttentionOperator, nn.MultiheadAttention):
    r"""``torch.nn.MultiheadAttention`` with the scores s·cos θ between query and key: same arguments and results.

    The projections of queries, keys, values and outputs are operators f = h(‖w‖, ‖x‖)·g(θ) + b. With the magnitude
    ``InnerProduct()`` they are plain projections, and only the scores differ.

    Args:
        embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype:
            Arguments of ``nn.MultiheadAttention``.
        magnitude: h of the projections, Sphere by default.
        angular: g of the projections, Cosine by default.
        scale: s, learned by default.

    >>> layer, x = CosineAttention(8, 2, batch_first=True), torch.randn(3, 5, 8)
    >>> out, weights = layer(x, x, x)
    >>> out.shape, weights.shape, layer.log_scale.exp()
    (torch.Size([3, 5, 8]), torch.Size([3, 5, 5]), tensor([2., 2.], grad_fn=<ExpBackward0>))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        magnitude: MagnitudeLike | None = None,
        angular: AngularLike | None = None,
        scale: AttentionScale | None = None,
    ):
        options = (dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype)
        nn.MultiheadAttention.__init__(self, embed_dim, num_heads, *options)
        self.decouple(magnitude, angular, scale)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype, magnitude=magnitude, angular=angular)  # type: ignore[assignment]
        if bias:
            nn.init.zeros_(self.out_proj.bias)  # as in nn.MultiheadAttention
