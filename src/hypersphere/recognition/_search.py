"""Exact nearest neighbors by cosine, with bounded memory for the scores."""

from typing import Protocol, runtime_checkable

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..collectives import gather_rows
from ..geometry import cosine, matmul, normalize
from ..geometry.products import uses_onednn

BLOCK = 1024  # probes compared at a time
CHUNK = 16384  # rows compared at a time with BLOCK probes; fewer probes are compared with more rows in the same memory
RUN = 64  # columns per block; first only the maximum of a block is examined
MAX_PROBES_BY_COLUMNS = 16  # up to this number of probes, a product by columns is faster
SPARE = 16  # additional candidates that are scored in float64, so that only near ties need a second pass
MAX_GATHERED = 2**22  # numbers in the rows that are gathered and scored in float64 at a time

Best = tuple[Float[Tensor, "p k"], Int[Tensor, "p k"]]


def search(
    probes: Float[Tensor, "p d"],
    gallery: "Float[Tensor, 'g d'] | Int8Rows",
    k: int = 10,
    *,
    normalized: bool = False,
    chunk: int | None = None,
    group: dist.ProcessGroup | None = None,
) -> Best:
    """Return the cosines, highest first, and the indices of the ``k`` gallery rows nearest to each probe.

    The result is exact. One matrix product per chunk of the gallery gives approximate cosines with a known error bound,
    and every row that the bound cannot exclude is scored again in float64. The result does not depend on the chunks or
    on the number of probes. Among scores within 1e-12 of each other, the lowest index comes first. The search needs
    memory for at most ``16384·(1024 + d)`` numbers, or ``chunk·(1024 + d)``.

    Args:
        probes: The features to search for.
        gallery: The features to search in, of any floating-point type; half precision is computed in float32. Or
            :class:`Int8Rows` of them, which take a quarter of the memory and give the same result.
        k: How many neighbors to return, between 1 and the size of the gallery.
        normalized: Whether the rows of the gallery have unit length already, which saves a division.
        chunk: How many rows of the gallery are compared at a time; by default, more rows for fewer probes.
        group: Processes that divide the probes among them, such as ``torch.distributed.group.WORLD``. All make the same
            call, and each returns the whole result. By default this process works alone.

    Raises:
        ValueError: If an argument is out of its range, or a feature is not finite.

    >>> search(torch.tensor([[1.0, 0.1]]), torch.tensor([[0.0, 1.0], [2.0, 0.0], [4.0, 0.0]]), k=2)
    (tensor([[0.9950, 0.9950]]), tensor([[1, 2]]))
    """
    rows: Rows = gallery if isinstance(gallery, Int8Rows) else DenseRows(gallery, normalized=normalized)
    count = 1 if group is None else dist.get_world_size(group)
    if not probes.isfinite().all():  # checked on every process before the probes are divided
        raise ValueError("probes must be finite, got NaN or infinity")
    if count == 1 or len(probes) < count:  # otherwise a process without probes would not detect an invalid gallery
        scores, indices = exact_search(probes, rows, k, chunk)
    else:
        shares = probes.tensor_split(count)
        found = exact_search(shares[dist.get_rank(group)], rows, k, chunk)
        scores, indices = (gather_rows(part, group, [len(share) for share in shares]) for part in found)
    return scores.to(torch.promote_types(probes.dtype, torch.float32)), indices


@runtime_checkable
class Rows(Protocol):
    """A gallery that can be scanned: approximate cosines with an error bound, and the rows for exact scores."""

    def __len__(self) -> int:
        """Return the number of rows, including invalid ones."""

    def error(self, dtype: torch.dtype) -> float:
        """Return the largest error of an approximate cosine that is computed in ``dtype``."""

    def products(self, probes: Float[Tensor, "p d"], start: int, stop: int) -> Float[Tensor, "p rows"]:
        """Return approximate cosines of unit probes with rows ``start`` to ``stop``; −∞ for an invalid row."""

    def rows(self, indices: Int[Tensor, "*n"]) -> Float[Tensor, "*n d"]:
        """Return the rows of these indices as they were given."""


class DenseRows:
    """The rows of a tensor. ``lengths`` saves computing them; rows where ``valid`` is False are never found."""

    def __init__(
        self,
        gallery: Float[Tensor, "g d"],
        *,
        normalized: bool = False,
        lengths: Float[Tensor, "g"] | None = None,
        valid: Bool[Tensor, "g"] | None = None,
    ):
        self.gallery, self.normalized, self.lengths, self.valid = gallery, normalized, lengths, valid

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.gallery)

    def error(self, dtype: torch.dtype) -> float:
        """Return the worst case (d + 8)·ε of a product and two lengths; more if torch may round the inputs of a product."""
        rounded = {"highest": 0.0, "high": 2.0**-9, "medium": 2.0**-6}[torch.get_float32_matmul_precision()]
        return (self.gallery.shape[1] + 8) * torch.finfo(dtype).eps + rounded * (dtype == torch.float32)

    def products(self, probes: Float[Tensor, "p d"], start: int, stop: int) -> Float[Tensor, "p rows"]:
        """Return approximate cosines. Dividing one product by the lengths is cheaper than dividing the rows."""
        rows = self.gallery[start:stop].to(probes.dtype)
        lengths = None
        if not self.normalized:
            lengths = torch.linalg.vector_norm(rows, dim=1) if self.lengths is None else self.lengths[start:stop]
        if lengths is not None and bool(((lengths > 1e-15) & (lengths < 1e15)).all()):  # the rows are finite
            scores = compute_inner_products(probes, rows).div_(lengths)
        else:
            if lengths is not None:  # squares may overflow or underflow: scale the rows first
                rows = torch.where(rows.isfinite().all(1, keepdim=True), normalize(rows), torch.nan)
            scores = compute_inner_products(probes, rows)
            if not scores.sum().isfinite():  # a sum of cosines cannot overflow, so the rows contain NaN or infinity
                last = start + len(rows) - 1
                raise ValueError(f"gallery must be finite, got NaN or infinity in rows {start} to {last}")
        return scores if self.valid is None else scores.masked_fill_(~self.valid[start:stop], -torch.inf)

    def rows(self, indices: Int[Tensor, "*n"]) -> Float[Tensor, "*n d"]:
        """Return rows of the tensor."""
        return self.gallery[indices]


class Int8Rows:
    """Rows that are scanned as int8 directions, in a quarter of the memory, and scored exactly from the original rows.

    Each direction is stored as 127·x̂/max|x̂| rounded to integers, with its scale. Rounding changes a component by at most
    half a step, so a cosine with a unit probe changes by at most ½·step·√d. The search is exact with this bound: every row
    that the bound cannot exclude is scored in float64 from ``gallery``, which may be memory-mapped.

    Args:
        gallery: Features ``(g, d)``, finite and not zero. A search reads only the rows that it scores exactly.
        chunk: Rows that are quantized at a time.

    >>> gallery = torch.randn(500, 32)
    >>> rows = Int8Rows(gallery)
    >>> rows.memory, gallery.numel() * 4
    (18000, 64000)
    >>> torch.equal(exact_search(gallery[:3], rows, 5)[1], exact_search(gallery[:3], DenseRows(gallery), 5)[1])
    True
    """

    def __init__(self, gallery: Float[Tensor, "g d"], *, chunk: int = 16384):
        self.gallery = gallery
        self._codes = torch.empty(gallery.shape, dtype=torch.int8)
        self._steps = torch.empty(len(gallery))
        for start in range(0, len(gallery), chunk):
            part = gallery[start : start + chunk].float()
            if not part.isfinite().all() or not (part != 0).any(1).all():
                raise ValueError("gallery must be finite and without rows of zeros")
            unit = normalize(part)
            steps = unit.abs().amax(1) / 127
            self._codes[start : start + chunk] = (unit / steps[:, None]).round().to(torch.int8)
            self._steps[start : start + chunk] = steps

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.gallery)

    @property
    def memory(self) -> int:
        """The bytes of the codes and their scales."""
        return self._codes.numel() + 4 * self._steps.numel()

    def error(self, dtype: torch.dtype) -> float:
        """Return ½·√d times the largest step, plus the rounding of the product."""
        dim = self.gallery.shape[1]
        return 0.5 * float(self._steps.max()) * dim**0.5 + DenseRows(self.gallery).error(dtype)

    def products(self, probes: Float[Tensor, "p d"], start: int, stop: int) -> Float[Tensor, "p rows"]:
        """Return approximate cosines from the int8 codes of one chunk."""
        return compute_inner_products(probes, self._codes[start:stop].to(probes.dtype)) * self._steps[start:stop]

    def rows(self, indices: Int[Tensor, "*n"]) -> Float[Tensor, "*n d"]:
        """Return rows of the gallery."""
        return self.gallery[indices]


def compute_inner_products(probes: Float[Tensor, "p d"], rows: Float[Tensor, "g d"]) -> Float[Tensor, "p g"]:
    """Return the matrix product of probes and rows, in the form that reads the rows fastest.

    >>> compute_inner_products(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[11.,  2.]])
    """
    if len(probes) > MAX_PROBES_BY_COLUMNS or rows.device.type != "cpu" or uses_onednn(probes, rows.T):
        return matmul(probes, rows.T)
    # A product of the rows with one column takes twice as long as with two.
    columns = probes.repeat(2, 1) if len(probes) == 1 else probes
    return (rows @ columns.T)[:, : len(probes)].T.contiguous()


def exact_search(
    probes: Float[Tensor, "p d"], gallery: Rows, k: int, chunk: int | None = None, spare: int = SPARE
) -> Best:
    """Return the ``k`` rows nearest to each probe with cosines in float64, for any :class:`Rows` of which at least ``k`` are valid."""
    if not 1 <= k <= len(gallery):
        raise ValueError(f"k must be between 1 and the size of the gallery {len(gallery)}, got {k!r}")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be an integer ≥ 1, got {chunk!r}")
    if not probes.isfinite().all():
        raise ValueError("probes must be finite, got NaN or infinity")
    dtype = torch.promote_types(probes.dtype, torch.float32)
    parts = []
    for block in probes.split(BLOCK):
        unit = normalize(block.to(dtype))
        step = CHUNK * (BLOCK + block.shape[1]) // (len(block) + block.shape[1]) if chunk is None else chunk
        values, candidates = _find_candidates(unit, gallery, min(k + spare, len(gallery)), step)
        scores, indices = _rescore(block, gallery, values, candidates, k)
        # A lower bound of the k-th best cosine. Rows that are not candidates have at most the value of the last candidate.
        least = values[:, k - 1] - 2 * gallery.error(dtype)
        unsure = (values[:, -1] >= least).nonzero().squeeze(1)
        if values.shape[1] < len(gallery) and len(unsure):
            scores[unsure], indices[unsure] = _score_unsure(
                block[unsure], unit[unsure], gallery, least[unsure], k, step
            )
        parts.append((scores, indices))
    return torch.cat([scores for scores, _ in parts]), torch.cat([indices for _, indices in parts])


def _find_candidates(unit: Tensor, gallery: Rows, count: int, chunk: int) -> Best:
    """Return the ``count`` best rows by approximate cosines, best first, in any order among equals."""
    values = unit.new_empty(len(unit), 0)
    indices = torch.empty(len(unit), 0, dtype=torch.long, device=unit.device)
    for start in range(0, len(gallery), chunk):
        products = gallery.products(unit, start, min(start + chunk, len(gallery)))
        new_values, new = largest(products, min(count, products.shape[1]))
        values, indices = torch.cat([values, new_values], 1), torch.cat([indices, new + start], 1)
        values, order = values.topk(min(count, values.shape[1]))
        indices = indices.gather(1, order)
    return values, indices


def largest(products: Float[Tensor, "p n"], count: int) -> Best:
    """Return ``topk``, found among the runs of ``RUN`` columns with the largest maxima, which contain the largest columns.

    >>> values, columns = largest(torch.tensor([[0.1, 0.9, 0.5]]), 2)
    >>> columns
    tensor([[1, 2]])
    """
    runs = products.shape[1] // RUN
    if runs < 4 * count:
        return products.topk(count)
    whole = products[:, : runs * RUN].unflatten(1, (runs, RUN))
    best = whole.amax(2).topk(count).indices
    columns = (best.unsqueeze(2) * RUN + torch.arange(RUN, device=best.device)).flatten(1)
    rest = torch.arange(runs * RUN, products.shape[1], device=best.device).expand(len(products), -1)
    columns = torch.cat([columns, rest], 1)
    values, order = products.gather(1, columns).topk(count)
    return values, columns.gather(1, order)


def _rescore(probes: Tensor, gallery: Rows, values: Tensor, candidates: Tensor, k: int) -> Best:
    """Return the best ``k`` of the candidates by their cosines in float64; the lowest index first among equals."""
    indices, order = candidates.sort(dim=1)
    step = max(1, MAX_GATHERED // (indices.shape[1] * probes.shape[1]))
    scores = torch.cat(
        [_compute_cosines(p, gallery.rows(i)) for p, i in zip(probes.split(step), indices.split(step), strict=True)]
    )
    scores = scores.masked_fill(values.gather(1, order) == -torch.inf, -torch.inf)
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    return scores[:, :k], indices.gather(1, order)[:, :k]


def _score_unsure(probes: Tensor, unit: Tensor, gallery: Rows, least: Tensor, k: int, chunk: int) -> Best:
    """Score every row whose approximate cosine reaches ``least`` in float64, for probes with many near ties."""
    best = [(probes.new_empty(0, dtype=torch.double), torch.empty(0, dtype=torch.long, device=probes.device))] * len(
        probes
    )
    for start in range(0, len(gallery), chunk):
        products = gallery.products(unit, start, min(start + chunk, len(gallery)))
        for i, reached in enumerate(products >= least[:, None]):
            for new in (reached.nonzero().squeeze(1) + start).split(max(1, MAX_GATHERED // probes.shape[1])):
                scores = torch.cat([best[i][0], _compute_cosines(probes[i : i + 1], gallery.rows(new[None]))[0]])
                scores, order = scores.sort(descending=True, stable=True)  # earlier means a lower index
                best[i] = scores[:k], torch.cat([best[i][1], new])[order[:k]]
    return torch.stack([scores for scores, _ in best]), torch.stack([indices for _, indices in best])


def _compute_cosines(probes: Float[Tensor, "p d"], rows: Float[Tensor, "p c d"]) -> Float[Tensor, "p c"]:
    # Pairwise, because the checks of other shapes import large parts of torch at the first call.
    return cosine(probes[:, None].double(), rows.double(), pairwise=True).squeeze(1).round(decimals=12)
