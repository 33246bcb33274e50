"""Exact nearest neighbours by cosine in a gallery that need not fit beside its scores."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import normalize


def search(
    probes: Float[Tensor, "p d"],
    gallery: Float[Tensor, "g d"],
    k: int = 10,
    *,
    normalized: bool = False,
    chunk: int = 16384,
) -> tuple[Float[Tensor, "p k"], Int[Tensor, "p k"]]:
    """The ``k`` gallery rows nearest to each probe: cosines, highest first, and their indices.

    Exact: one matrix product per ``chunk`` of the gallery, whose best ``k`` are merged with the best so far. Of equal
    scores the lowest index comes first. Besides the result, memory is ``chunk·(probes + d)`` numbers. A half-precision
    gallery is computed in float32, chunk by chunk. ``normalized`` says that the rows of both have unit length already
    and saves the division.

    >>> search(torch.tensor([[1.0, 0.1]]), torch.tensor([[0.0, 1.0], [2.0, 0.0], [4.0, 0.0]]), k=2)
    (tensor([[0.9950, 0.9950]]), tensor([[1, 2]]))
    """
    if not 1 <= k <= len(gallery):
        raise ValueError(f"k must be between 1 and the size of the gallery {len(gallery)}, got {k!r}")
    if chunk < 1:
        raise ValueError(f"chunk must be an integer ≥ 1, got {chunk!r}")
    probes = _rows(probes, normalized)
    if not probes.isfinite().all():
        raise ValueError("probes must be finite, got NaN or infinity")
    rows = len(probes)
    if rows == 1:  # a matrix–vector product rounds equal rows differently by their position; a matrix product does not
        probes = probes.expand(2, -1)
    scores, indices = probes.new_empty(len(probes), 0), torch.empty(len(probes), 0, dtype=torch.long, device=probes.device)
    for start in range(0, len(gallery), chunk):
        cos = probes @ _rows(gallery[start : start + chunk], normalized).to(probes.dtype).T
        new_scores, new = _best(cos, min(k, cos.shape[1]))
        if not new_scores.isfinite().all():
            raise ValueError(f"gallery must be finite, got NaN or infinity in rows {start} to {start + cos.shape[1] - 1}")
        # Of equals the earlier in the row wins a stable sort: the ones so far have the lower indices.
        scores, order = torch.cat([scores, new_scores], 1).sort(dim=1, descending=True, stable=True)
        indices = torch.cat([indices, new + start], 1).gather(1, order)[:, :k]
        scores = scores[:, :k]
    return scores[:rows].clamp(-1, 1), indices[:rows]


def _best(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` highest of each row in the order of their indices, the lowest indices among equals.

    ``topk`` picks any of equals, so a row whose k-th and next value agree is sorted in full.
    """
    values, indices = scores.topk(min(k + 1, scores.shape[1]))
    if values.shape[1] > k:
        tied = (values[:, k] == values[:, k - 1]).nonzero().squeeze(1)
        values, indices = values[:, :k], indices[:, :k]
        if len(tied):
            full, order = scores[tied].sort(dim=1, descending=True, stable=True)
            values[tied], indices[tied] = full[:, :k], order[:, :k]
    indices, order = indices.sort(dim=1)
    return values.gather(1, order), indices


def _rows(x: Tensor, normalized: bool) -> Tensor:
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return x if normalized else normalize(x)
