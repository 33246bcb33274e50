"""Splitting of tokens into heads, and additive masks, for attention."""

import torch
from jaxtyping import Float
from torch import Tensor


def put_batch_first(x: Tensor, batch_first: bool) -> Float[Tensor, "batch tokens dim"]:
    """Return tokens as (batch, tokens, dim), from one sequence or from a batch in either layout.

    >>> put_batch_first(torch.zeros(5, 3, 8), batch_first=False).shape, put_batch_first(torch.zeros(5, 8), batch_first=False).shape
    (torch.Size([3, 5, 8]), torch.Size([1, 5, 8]))
    """
    if x.is_nested:
        raise ValueError("cosine attention takes padded tensors, got a nested one; use torch.nested.to_padded_tensor")
    if x.dim() not in (2, 3):
        raise ValueError(f"attention takes (tokens, dim) or batches of them, got the shape {tuple(x.shape)}")
    if x.dim() == 2:
        return x[None]
    return x if batch_first else x.transpose(0, 1)


def split_heads(x: Float[Tensor, "batch tokens width"], heads: int) -> Float[Tensor, "batch heads tokens dim"]:
    """Split the last axis into heads.

    >>> split_heads(torch.zeros(2, 5, 8), 4).shape
    torch.Size([2, 4, 5, 2])
    """
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Float[Tensor, "batch heads tokens dim"]) -> Float[Tensor, "batch tokens width"]:
    """Undo :func:`split_heads`.

    >>> join_heads(torch.zeros(2, 4, 5, 2)).shape
    torch.Size([2, 5, 8])
    """
    return x.transpose(1, 2).flatten(2)


def additive_mask(
    attention: Tensor | None, padding: Tensor | None, batch: int, heads: int, dtype: torch.dtype
) -> Float[Tensor, "#batch #heads #queries keys"] | None:
    """Combine the two masks of ``nn.MultiheadAttention`` into one that is added to the scores.

    A boolean mask excludes entries that are True; a floating-point mask is added unchanged.

    Args:
        attention: (queries, keys), or (batch·heads, queries, keys).
        padding: (batch, keys), or (keys,) for a sequence without batch.
        batch: The number of sequences.
        heads: The number of heads.
        dtype: The dtype of the scores.

    Returns:
        The mask, or None if there is none.

    Raises:
        ValueError: If a mask is neither boolean nor floating-point.

    >>> additive_mask(None, torch.tensor([[False, True]]), 1, 4, torch.float32)
    tensor([[[[0., -inf]]]])
    """
    total = None
    if attention is not None:
        total = _to_additive(attention, "attn_mask", dtype)
        total = total[None, None] if total.dim() == 2 else total.unflatten(0, (batch, heads))
    if padding is not None:
        keys = _to_additive(padding, "key_padding_mask", dtype)
        keys = keys.reshape(batch, 1, 1, -1)
        total = keys if total is None else total + keys
    return total


def _to_additive(mask: Tensor, name: str, dtype: torch.dtype) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, float("-inf"))
    if not mask.is_floating_point():
        raise ValueError(f"{name} must be boolean or floating-point, got {mask.dtype}")
    return mask.to(dtype)
