r"""Heads with very many classes: the summary of the other classes' logits, a block of classes at a time.

Above :data:`KEEP` logits neither they nor a normalized copy of the weights is ever built: the backward pass computes each
block's logits again, unless several centres a class make that dear and the logits are small beside the weight. What is kept
is the gradient itself, one inverse norm per row of the weight, and a few buffers of N×chunk. The target's own logit, with
its margin, is plain autograd on N numbers: :func:`rows_of` gathers the N rows it needs and hands the weight on, so that
their gradients are added to the rows of the one large gradient instead of filling another.

The rows may be a :class:`~hypersphere.objectives.part.Portion` of all classes, whose other rows are on other processes or
left out of this step. What the processes have found is then combined: the margin's ``hardest`` and the comparison's
state, tensors of the batch's length. Labels, the target's cosine and the features are those of the whole batch, the same
on every process. The summary, and so the loss, is then the same on every process; the gradients of the weight and the
bias belong to the rows here, and those of everything else are this process's share, to be added up over all of them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry.tracing import is_traced
from .chunked import Block, ChunkedLogits, Gradients, Inputs
from .comparisons.comparison_loss import Comparison, Summary
from .cosines import PlainLogits
from .hooked import HookedLogits
from .part import Portion, places_of
from .scores import BatchFeatures, Scores, is_plain

FEW = 2**18
"""``chunk="auto"`` takes all products at once, with their derivative by hand, up to this many logits (N·C)."""
DENSE = 2**16
"""``chunk="auto"`` is dense up to this many logits (N·C), and always under torch.compile."""
KEEP = 2**21
"""Up to this many logits are kept for the backward pass instead of being computed again: 8 MiB in float32."""
KEEP_BESIDE = 8
"""With several centres a class, whose products are as many times dearer to compute again, they are also kept where they
take no more than this part (an eighth) of the memory of the weight."""
CPU_CHUNK, DEVICE_CHUNK = 2**18, 2**24
"""Logits in a chunk: on a CPU they stay in the cache, elsewhere they must fill the device."""


def chunk_size(chunk: int | str | None, n: int, num_classes: int, device: torch.device) -> int | None:
    """How many classes at a time; None for all at once with plain autograd."""
    if chunk is None or (isinstance(chunk, int) and not isinstance(chunk, bool) and chunk >= 1):
        return chunk
    if chunk != "auto":
        raise ValueError(f'chunk must be "auto", None or a number of classes ≥ 1, got {chunk!r}')
    if n * num_classes <= DENSE or torch.compiler.is_compiling():
        return None
    return max(1, (CPU_CHUNK if device.type == "cpu" else DEVICE_CHUNK) // n)


def are_few(chunk: int | str | None, n: int, part: Portion) -> bool:
    """Whether all products fit at once; who looks into the operations sees plain ones instead."""
    return chunk == "auto" and part.is_whole and n * part.size <= FEW and not is_traced()


def rows_of(
    weight: Float[Tensor, "ck d"], places: Int[Tensor, "n"], sub_centers: int, chunk: int | None
) -> tuple[Tensor, Tensor]:
    """The rows of the target classes, (n, K, d), and the weight to use for the other classes."""
    if chunk is None:
        return weight.unflatten(0, (-1, sub_centers))[places], weight
    if not len(weight):
        return weight.new_zeros(len(places), sub_centers, weight.shape[1]), weight
    rows, rest = _Rows.apply(weight, places.clamp(0, len(weight) // sub_centers - 1), sub_centers)
    return rows, rest


def summarize_others(
    scores: Scores,
    comparison: Comparison,
    x: BatchFeatures,
    weight: Float[Tensor, "ck d"],
    bias: Float[Tensor, "c"] | None,
    target: Float[Tensor, "n"],
    chunk: int,
    part: Portion,
) -> Summary:
    """The comparison's summary of all classes but each sample's own, exact, in chunks of ``chunk`` classes.

    Plain cosines have a closed form; hooks are differentiated from the cosines on.
    """
    assert x.labels is not None
    places, here = places_of(part, x.labels)
    places = places if here is None else places.masked_fill(~here, -1)
    beside = scores.sub_centers > 1 and KEEP_BESIDE * len(places) <= scores.sub_centers * weight.shape[1]
    keep = len(places) * part.size <= KEEP or beside
    logits: ChunkedLogits
    batch: tuple[Tensor, ...]
    if is_plain(scores):
        logits, batch = PlainLogits(scores.sub_centers, not scores.weight_norm, scores.matmul_dtype), (x.scaled,)
    else:
        hardest = _hardest(scores, x, weight, places, chunk, part) if scores.margin.hardest else None
        hooked = HookedLogits(scores, x, target, hardest, part)
        logits, batch = hooked, hooked.batch
    summary: Summary = _Others.apply(logits, comparison, places, chunk, keep, part, weight, bias, *batch)
    return summary


class _Rows(torch.autograd.Function):
    """weight[labels], and the weight itself; backward, the rows are added to the gradient that arrives for the latter."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, labels: Tensor, sub_centers: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(labels)
        ctx.sub_centers = sub_centers
        return weight.unflatten(0, (-1, sub_centers))[labels], weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, rows: Tensor, rest: Tensor) -> tuple[Tensor, None, None]:
        (labels,) = ctx.saved_tensors
        # In place: the only other holder of this gradient is _Others, which has just made it.
        rest.unflatten(0, (-1, ctx.sub_centers)).index_add_(0, labels, rows)
        return rest, None, None


class _Others(torch.autograd.Function):
    """The blocks one after the other: forward into the comparison's state, backward from its summary."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: ChunkedLogits,
        comparison: Comparison,
        labels: Tensor,
        chunk: int,
        keep: bool,
        whole: Portion,
        weight: Tensor,
        bias: Tensor | None,
        *batch: Tensor,
    ) -> Summary:
        inputs = Inputs(weight, bias, batch)
        state, blocks, room = comparison.start(batch[0][:, 0]), [], _Room(len(weight) // logits.sub_centers)
        for part in _parts(len(weight) // logits.sub_centers, chunk):
            block = logits.block(part, inputs)
            z = logits.logits(part, block, inputs)
            counts = None if whole.counts is None else whole.counts[part]
            state = comparison.add(state, _fill(z, labels, part, -torch.inf), counts)
            # The products may be z itself; a slope of 0 times −∞ would be NaN.
            _fill(z, labels, part, 0.0)
            blocks.append(room.stored(block, part) if keep else Block(block.inverse))
        others = whole.processes
        summary = comparison.finish(state if others is None else comparison.reduce(state, others))
        ctx.save_for_backward(labels, weight, bias, *batch, *summary)
        ctx.logits, ctx.comparison, ctx.chunk, ctx.blocks, ctx.of_batch = logits, comparison, chunk, blocks, len(batch)
        ctx.counts = whole.counts
        return summary

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a head in chunks has first derivatives only; chunk=None can be differentiated twice (create_graph=True)"
            )
        labels, weight, bias, *rest = ctx.saved_tensors
        batch, summary = tuple(rest[: ctx.of_batch]), tuple(rest[ctx.of_batch :])
        inputs, logits = Inputs(weight, bias, batch), ctx.logits
        found = Gradients.of(inputs, ctx.needs_input_grad[6:])
        for part, block in zip(_parts(len(weight) // logits.sub_centers, ctx.chunk), ctx.blocks, strict=True):
            whole = logits.block(part, inputs, block.inverse) if block.products is None else block
            slope = _slope(ctx.comparison, summary, gradients, labels, part, ctx.counts)
            logits.pull(part, whole, inputs, slope, found)
        return (None, None, None, None, None, None, found.weight, found.bias, *found.batch)


class _Room:
    """One tensor for what is kept of all blocks with several centres: between the larger tensors that a block needs for
    a moment, many small ones that stay would leave holes of twice their size."""

    def __init__(self, classes: int):
        self.classes = classes
        self.products: Tensor | None = None
        self.nearest: Tensor | None = None

    def stored(self, block: Block, part: slice) -> Block:
        """The same block in the memory of this room; one whose products are all there ever was stays where it is."""
        products, nearest = block.products, block.nearest
        if products is None or nearest is None:
            return block
        if self.products is None or self.nearest is None:
            self.products, self.nearest = (t.new_empty(self.classes, len(t)) for t in (products, nearest))
        return Block(block.inverse, self.products[part].copy_(products.T).T, self.nearest[part].copy_(nearest.T).T)


def _slope(
    comparison: Comparison, summary: Summary, gradients: Summary, labels: Tensor, part: slice, counts: Tensor | None
) -> Callable[[Tensor], Tensor]:
    """∂L/∂z of a block, 0 at the targets, whose logit is not among the others."""
    mine = None if counts is None else counts[part]
    return lambda z: _fill(comparison.slope(z, summary, gradients, mine), labels, part, 0.0)


@torch.no_grad()
def _hardest(
    scores: Scores, x: BatchFeatures, weight: Tensor, labels: Tensor, chunk: int, whole: Portion
) -> Float[Tensor, "n"]:
    """The k-th largest cosine among the other classes, by one pass over the blocks."""
    k = scores.margin.hardest
    cosines = PlainLogits(scores.sub_centers, True, scores.matmul_dtype)
    top = torch.full_like(x.norms, -torch.inf).unsqueeze(-1).expand(-1, k)
    for part in _parts(len(weight) // scores.sub_centers, chunk):
        cos = cosines.block(part, Inputs(weight, None, (x.directions,))).products
        assert cos is not None
        top = torch.cat([top, _fill(cos, labels, part, -torch.inf)], -1).topk(k, -1).values
    return (top if whole.processes is None else whole.processes(top.contiguous(), "top"))[:, -1]


def _parts(classes: int, chunk: int) -> Iterator[slice]:
    return (slice(start, min(start + chunk, classes)) for start in range(0, classes, chunk))


def _fill(z: Tensor, labels: Tensor, part: slice, value: float) -> Tensor:
    """Write ``value`` at the target of every sample whose class is in this part, without asking which those are."""
    local = labels - part.start
    inside = (local >= 0) & (local < z.shape[1])
    column = local.clamp(0, z.shape[1] - 1).unsqueeze(-1)
    return z.scatter_(1, column, z.gather(1, column).masked_fill_(inside.unsqueeze(-1), value))
