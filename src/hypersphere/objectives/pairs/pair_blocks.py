r"""Sums over all pairs of rows and references, a block of rows at a time: all cosines are never held at once.

A loss over pairs is a small function of a few sums, and each sum is over rows: :math:`S = Σ_i t(\cos θ_{i1}, …, \cos
θ_{im})`. Up to :data:`KEEP` cosines there is one block and plain autograd. Above, the blocks are checkpointed: the
backward pass computes the cosines of a block again, so what is held is the features, their gradient and one block.
"""

from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ...geometry import normalize

MIN_NORM = 1e-4
"""Features and proxies shorter than this get the gradient of one of this length, as in the heads; values are exact."""
KEEP = 2**22
"""Up to this number of cosines there is only one block, and nothing is computed twice."""
BLOCK, MIN_ROWS, MAX_BLOCK_ENTRIES = 2**20, 256, 2**23
"""Number of cosines per block. A block has at least ``MIN_ROWS`` rows unless it would exceed ``MAX_BLOCK_ENTRIES``, because every
block adds to the gradient of all references, which should not take longer than the block itself."""

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
    """How rows are compared: larger is more alike. The cosine in nearly every loss."""

    def prepare(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Return the rows in the form that :meth:`compare` takes, computed once."""

    def compare(self, rows: Float[Tensor, "r d"], references: Float[Tensor, "m d"]) -> Float[Tensor, "r m"]:
        """Return the similarity of each prepared row with each prepared reference."""


class CosineSimilarity:
    """cos θ: only directions count.

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


def pair_sums(
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
        terms: from the cosines of a block to its sums.
        rows: anchors of any length, in float32 or float64.
        labels: what they are.
        references: what they are compared with, in the same dtype.
        reference_labels: what those are; equal labels make a positive pair, others a negative one.
        own: the column of each row's own copy among the references, which is neither; None if there is none.
        chunk: rows at a time; ``None`` is all at once, ``"auto"`` a size that stays in memory.
        similarity: what rows are compared by.

    Returns:
        The sums over all rows.
    """
    directions = similarity.prepare(references)
    anchors = directions if rows is references else similarity.prepare(rows)

    def block(part: Tensor, part_labels: Tensor, part_own: Tensor | None, directions: Tensor) -> Tensor:
        cos = similarity.compare(part, directions)
        positive = part_labels[:, None] == reference_labels
        negative = ~positive
        if part_own is not None:
            positive.scatter_(1, part_own[:, None], False)
        return terms(cos, positive, negative)

    size = choose_block_rows(chunk, len(rows), len(references), rows.device)
    if size >= len(rows):
        return block(anchors, labels, own, directions)
    owns = [None] * -(-len(rows) // size) if own is None else own.split(size)
    parts = []
    for part, part_labels, part_own in zip(anchors.split(size), labels.split(size), owns, strict=True):
        if torch.is_grad_enabled():
            arguments = (part, part_labels, part_own, directions)
            parts.append(checkpoint(block, *arguments, use_reentrant=False, preserve_rng_state=False))
        else:
            parts.append(block(part, part_labels, part_own, directions))
    return torch.stack(parts).sum(0)


def choose_block_rows(chunk: Chunk, rows: int, references: int, device: torch.device) -> int:
    """Return the number of rows per block."""
    if chunk is None or (chunk == "auto" and rows * references <= KEEP):
        return max(rows, 1)
    if chunk != "auto":
        return chunk
    most = MAX_BLOCK_ENTRIES if device.type == "cpu" else 4 * MAX_BLOCK_ENTRIES
    return max(1, BLOCK // references, min(MIN_ROWS, most // references))


def check_chunk(chunk: Chunk) -> Chunk:
    """Return the argument if it is valid; raise a ValueError otherwise."""
    if chunk is None or chunk == "auto" or (isinstance(chunk, int) and not isinstance(chunk, bool) and chunk >= 1):
        return chunk
    raise ValueError(f'chunk must be "auto", None or a number of rows ≥ 1, got {chunk!r}')


def make_zero_loss(*tensors: Tensor) -> Float[Tensor, ""]:
    """Return 0 with a zero gradient for each of the tensors: the loss of no samples."""
    return torch.stack([tensor.flatten()[:0].sum() for tensor in tensors]).sum()


def log_sum_exp(z: Float[Tensor, "r m"], among: Bool[Tensor, "r m"]) -> Float[Tensor, "r"]:
    """Return log Σ exp z over the marked entries of each row; −∞, without gradient, where none is marked."""
    some = among.any(1)
    # A row of −∞ alone would have the gradient NaN, even if nothing uses it.
    return torch.where(some, z.masked_fill(~among & some[:, None], -torch.inf).logsumexp(1), -torch.inf)


def distance(cos: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Return ‖x̂ − ŷ‖ = √(2 − 2cos θ); where the cosine rounds to 1 it is 0, with a zero gradient."""
    square = 2 - 2 * cos
    apart = square > 4 * torch.finfo(cos.dtype).eps
    return torch.where(apart, torch.where(apart, square, 1).sqrt(), 0)
