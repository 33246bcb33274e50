r"""Sums over all pairs of rows and references, a block of rows at a time.

A loss over pairs is a function of a few sums over rows, :math:`S = Σ_i t(\cos θ_{i1}, …, \cos θ_{im})`. Up to
:data:`MAX_KEPT_COSINES` cosines are one block, differentiated by plain autograd. More are divided into checkpointed blocks: the
backward pass computes the cosines of each block again, so only the features, their gradient and one block are in memory.
"""

from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ...geometry import normalize

MIN_NORM = 1e-4
"""Features and proxies shorter than this get the gradient of a vector of this length, as in the heads. Values are exact."""
MAX_KEPT_COSINES = 2**22
"""Up to this number of cosines there is only one block, and nothing is computed twice."""
BLOCK_COSINES, MIN_BLOCK_ROWS, MAX_BLOCK_COSINES = 2**20, 256, 2**23
"""Number of cosines per block. A block has at least ``MIN_BLOCK_ROWS`` rows unless it would exceed ``MAX_BLOCK_COSINES``, because
every block adds to the gradient of all references, which should not take longer than the block itself."""

Chunk = int | Literal["auto"] | None


@runtime_checkable
class Terms(Protocol):
    """The sums of a loss over the rows of one block, from its cosines and its positive and negative pairs."""

    def __call__(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return the sums and counts."""


@runtime_checkable
class Similarity(Protocol):
    """A measure that rows are compared by, larger for more similar rows. Most losses use the cosine."""

    def prepare(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Return the rows in the form that :meth:`compare` expects. It is called once for all blocks."""

    def compare(self, rows: Float[Tensor, "r d"], references: Float[Tensor, "m d"]) -> Float[Tensor, "r m"]:
        """Return the similarity of each prepared row with each prepared reference."""


class CosineSimilarity:
    """cos θ, which does not depend on lengths.

    >>> cosine = CosineSimilarity()
    >>> cosine.compare(*(cosine.prepare(x) for x in (torch.tensor([[3.0, 4.0]]), torch.eye(2))))
    tensor([[0.6000, 0.8000]])
    """

    def prepare(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Return the directions."""
        return normalize(x, min_norm=MIN_NORM)

    def compare(self, rows: Float[Tensor, "r d"], references: Float[Tensor, "m d"]) -> Float[Tensor, "r m"]:
        """Return the cosines."""
        return rows @ references.T


COSINE = CosineSimilarity()


def sum_over_pairs(
    terms: Terms,
    rows: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    references: Float[Tensor, "m d"],
    reference_labels: Int[Tensor, "m"],
    own: Int[Tensor, "n"] | None = None,
    chunk: Chunk = "auto",
    similarity: Similarity = COSINE,
) -> Float[Tensor, "terms"]:
    """Add up ``terms`` over blocks of rows.

    Args:
        terms: Computes the sums of a block from its cosines.
        rows: The anchors, of any length, in float32 or float64.
        labels: The class of each row.
        references: The vectors to compare with, in the same dtype.
        reference_labels: The class of each reference. A pair of equal labels is positive, any other pair negative.
        own: The index of each row among the references, whose pair is neither positive nor negative; None if the references are
            other vectors.
        chunk: Number of rows per block; ``None`` for all at once, ``"auto"`` for a size that fits into memory.
        similarity: The measure that rows are compared by.

    Returns:
        The sums over all rows.
    """
    directions = similarity.prepare(references)
    anchors = directions if rows is references else similarity.prepare(rows)

    def sum_block(part: Tensor, part_labels: Tensor, part_own: Tensor | None, directions: Tensor) -> Tensor:
        cos = similarity.compare(part, directions)
        positive = part_labels[:, None] == reference_labels
        negative = ~positive
        if part_own is not None:
            positive.scatter_(1, part_own[:, None], False)
        return terms(cos, positive, negative)

    size = choose_block_rows(chunk, len(rows), len(references), rows.device)
    if size >= len(rows):
        return sum_block(anchors, labels, own, directions)
    owns = [None] * -(-len(rows) // size) if own is None else own.split(size)
    parts = []
    for part, part_labels, part_own in zip(anchors.split(size), labels.split(size), owns, strict=True):
        if torch.is_grad_enabled():
            arguments = (part, part_labels, part_own, directions)
            parts.append(checkpoint(sum_block, *arguments, use_reentrant=False, preserve_rng_state=False))
        else:
            parts.append(sum_block(part, part_labels, part_own, directions))
    return torch.stack(parts).sum(0)


def choose_block_rows(chunk: Chunk, rows: int, references: int, device: torch.device) -> int:
    """Return the number of rows per block."""
    if chunk is None or (chunk == "auto" and rows * references <= MAX_KEPT_COSINES):
        return max(rows, 1)
    if chunk != "auto":
        return chunk
    max_cosines = MAX_BLOCK_COSINES if device.type == "cpu" else 4 * MAX_BLOCK_COSINES
    return max(1, BLOCK_COSINES // references, min(MIN_BLOCK_ROWS, max_cosines // references))


def check_chunk(chunk: Chunk) -> Chunk:
    """Return the argument if it is valid; raise a ValueError otherwise."""
    if chunk is None or chunk == "auto" or (isinstance(chunk, int) and not isinstance(chunk, bool) and chunk >= 1):
        return chunk
    raise ValueError(f'chunk must be "auto", None or a number of rows ≥ 1, got {chunk!r}')


def make_zero_loss(*tensors: Tensor) -> Float[Tensor, ""]:
    """Return 0 with a zero gradient for each of the tensors: the loss of no samples."""
    return torch.stack([tensor.flatten()[:0].sum() for tensor in tensors]).sum()


def log_sum_exp(z: Float[Tensor, "r m"], among: Bool[Tensor, "r m"]) -> Float[Tensor, "r"]:
    """Return log Σ exp z over the marked entries of each row. Rows without a marked entry get −∞ and no gradient."""
    some = among.any(1)
    # A row of −∞ alone would have the gradient NaN, even if nothing uses it.
    return torch.where(some, z.masked_fill(~among & some[:, None], -torch.inf).logsumexp(1), -torch.inf)


def distance(cos: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Return ‖x̂ − ŷ‖ = √(2 − 2cos θ). If the cosine rounds to 1, it is 0 with a zero gradient."""
    square = 2 - 2 * cos
    apart = square > 4 * torch.finfo(cos.dtype).eps
    return torch.where(apart, torch.where(apart, square, 1).sqrt(), 0)
