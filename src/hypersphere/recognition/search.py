"""Exact nearest neighbours by cosine in a gallery that need not fit beside its scores."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from ..geometry import cosine, normalize

BLOCK = 1024  # probes compared at a time
TILE = 64  # gallery rows come in multiples of this: equal rows then round alike wherever they stand
SPARE = 16  # candidates beyond k that are scored again, so that rounding at the edge of the list cannot decide


def search(
    probes: Float[Tensor, "p d"],
    gallery: Float[Tensor, "g d"],
    k: int = 10,
    *,
    normalized: bool = False,
    chunk: int = 16384,
) -> tuple[Float[Tensor, "p k"], Int[Tensor, "p k"]]:
    """The ``k`` gallery rows nearest to each probe: cosines, highest first, and their indices.

    Exact: one matrix product per ``chunk`` of the gallery, whose best are merged with the best so far; the winners are
    scored again in float64, so that neither chunks nor the number of probes show in the result. Of scores within 1e-12
    of each other the lowest index comes first. Besides the result, memory is ``chunk·(1024 + d)`` numbers at the most.
    A half-precision gallery is computed in float32, chunk by chunk. ``normalized`` says that the rows of both have unit
    length already and saves the division.

    >>> search(torch.tensor([[1.0, 0.1]]), torch.tensor([[0.0, 1.0], [2.0, 0.0], [4.0, 0.0]]), k=2)
    (tensor([[0.9950, 0.9950]]), tensor([[1, 2]]))
    """
    if not 1 <= k <= len(gallery):
        raise ValueError(f"k must be between 1 and the size of the gallery {len(gallery)}, got {k!r}")
    if chunk < 1:
        raise ValueError(f"chunk must be an integer ≥ 1, got {chunk!r}")
    if not probes.isfinite().all():
        raise ValueError("probes must be finite, got NaN or infinity")
    chunk = -(-min(chunk, len(gallery)) // TILE) * TILE
    parts = []
    for block in probes.split(BLOCK):
        candidates = _candidates(block, gallery, min(k + SPARE, len(gallery)), normalized, chunk)
        parts.append(_rescored(block, gallery, candidates, k))
    dtype = torch.promote_types(probes.dtype, torch.float32)
    return torch.cat([scores for scores, _ in parts]).to(dtype), torch.cat([indices for _, indices in parts])


def _candidates(probes: Tensor, gallery: Tensor, k: int, normalized: bool, chunk: int) -> Int[Tensor, "p k"]:
    """Indices of the best ``k`` by the matrix product, in no particular order."""
    probes = probes.to(torch.promote_types(probes.dtype, torch.float32))
    probes = probes if normalized else normalize(probes)
    scores = probes.new_empty(len(probes), 0)
    indices = torch.empty(len(probes), 0, dtype=torch.long, device=probes.device)
    for start in range(0, len(gallery), chunk):
        rows = gallery[start : start + chunk].to(probes.dtype)
        new_scores, new = _best(_products(probes, rows, normalized, chunk), min(k, len(rows)))
        if not new_scores.isfinite().all():
            raise ValueError(f"gallery must be finite, got NaN or infinity in rows {start} to {start + len(rows) - 1}")
        # Of equals the earlier in the row wins a stable sort: the ones so far have the lower indices.
        scores, order = torch.cat([scores, new_scores], 1).sort(dim=1, descending=True, stable=True)
        indices = torch.cat([indices, new + start], 1).gather(1, order)[:, :k]
        scores = scores[:, :k]
    return indices


def _products(probes: Tensor, rows: Tensor, normalized: bool, chunk: int) -> Float[Tensor, "p rows"]:
    """Cosines of unit probes with rows; NaN where a row is not finite."""
    length = rows.new_ones(()) if normalized else torch.linalg.vector_norm(rows, dim=1)
    if not (
        (length > 1e-15) & (length < 1e15)
    ).all():  # its square may not be representable: the careful way, or NaN for NaN
        rows, length = torch.where(rows.isfinite().all(1, keepdim=True), normalize(rows), torch.nan), rows.new_ones(())
    # Products of one shape: the last chunk is filled up, and what fills it cut off again.
    padded = rows if len(rows) == chunk else F.pad(rows, (0, 0, 0, chunk - len(rows)))
    # Dividing the products is cheaper than dividing the rows.
    return (probes @ padded.T)[:, : len(rows)].div_(length)


def _rescored(probes: Tensor, gallery: Tensor, candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The best ``k`` of the candidates by their cosines in float64, one pair at a time."""
    indices = candidates.sort(dim=1).values
    scores = torch.cat(
        [
            cosine(p[:, None].double(), gallery[i].double())
            for p, i in zip(probes.split(64), indices.split(64), strict=True)  # 64: the gathered rows stay small
        ]
    ).round(decimals=12)
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    return scores[:, :k], indices.gather(1, order)[:, :k]


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
