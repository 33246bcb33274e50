"""Distances between neurons: the smallest angle and the nearest pairs (F.9)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import accumulation_dtype, angle, normalize
from .gram_blocks import wide_dtype
from .hyperspherical import as_neurons
from .pair_sums import CHUNK_ENTRIES


def separation(weight: Float[Tensor, "neurons *dim"]) -> Float[Tensor, ""]:
    r"""Return ψ = min_{i≠j} arccos(ŵ_i·ŵ_j), the smallest angle between two neurons, in radians  (eq. F.37).

    >>> separation(torch.eye(3))
    tensor(1.5708)
    """
    return nearest_pairs(weight, 1)[1][0]


@torch.no_grad()
def nearest_pairs(
    weight: Float[Tensor, "neurons *dim"], count: int = 5
) -> tuple[Int[Tensor, "count 2"], Float[Tensor, " count"]]:
    """Return the ``count`` pairs of neurons with the smallest angles and these angles, nearest first.

    If there are fewer pairs, all are returned. The Gram matrix is computed in float64, in chunks of rows. A zero row
    has the angle π/2 to all others.

    >>> nearest_pairs(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.5]]), 1)[0]
    tensor([[0, 2]])
    """
    if count < 1:
        raise ValueError(f"count must be a number ≥ 1, got {count!r}")
    rows = as_neurons(weight)
    x = normalize(rows.to(wide_dtype(rows)))
    n, chunk = len(x), max(64, CHUNK_ENTRIES // len(x))
    best, flat_index = x.new_empty(0), torch.empty(0, dtype=torch.long, device=x.device)
    for start in range(0, n, chunk):
        cos = x[start : start + chunk] @ x.T
        i = torch.arange(start, start + len(cos), device=x.device)[:, None]
        cos.masked_fill_(i >= torch.arange(n, device=x.device), -2)
        values, index = cos.flatten().topk(min(count, cos.numel()))
        best, flat_index = torch.cat([best, values]), torch.cat([flat_index, index + start * n])
    top = best.topk(min(count, n * (n - 1) // 2)).indices
    pairs = torch.stack([flat_index[top] // n, flat_index[top] % n], 1)
    angles = angle(x[pairs[:, 0]], x[pairs[:, 1]])
    order = angles.argsort()
    return pairs[order], angles[order].to(accumulation_dtype(rows))
