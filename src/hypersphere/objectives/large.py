r"""Heads with very many classes: log Σ_{j≠y} exp z_j over the other classes, a chunk of classes at a time.

Above :data:`KEEP` logits neither they nor a normalized copy of the weights is ever built: the backward pass computes each chunk's
logits again. What is kept is the gradient itself, one inverse norm per row of the weight, and a few buffers of N×chunk.
The target's own logit, with its margin, is plain autograd on N numbers: :func:`rows_of` gathers the N rows it needs and hands the
weight on, so that their gradients are added to the rows of the one large gradient instead of filling another.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .cosines import CosineParts
from .hooked import HookedParts
from .scores import Features, Scores, is_plain

DENSE = 2**16
"""``chunk="auto"`` is dense up to this many logits (N·C), and always under torch.compile."""
KEEP = 2**21
"""Up to this many logits are kept for the backward pass instead of being computed again: 8 MiB in float32."""
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


def rows_of(
    weight: Float[Tensor, "ck d"], labels: Int[Tensor, "n"], sub_centers: int, chunk: int | None
) -> tuple[Tensor, Tensor]:
    """The rows of the target classes, (n, K, d), and the weight to use for the other classes."""
    if chunk is None:
        return weight.unflatten(0, (-1, sub_centers))[labels], weight
    rows, rest = _Rows.apply(weight, labels, sub_centers)
    return rows, rest


def large_log_sum_exp(
    scores: Scores,
    x: Features,
    weight: Float[Tensor, "ck d"],
    bias: Float[Tensor, "c"] | None,
    labels: Int[Tensor, "n"],
    target: Float[Tensor, "n"],
    chunk: int,
    with_total: bool,
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """log Σ_{j≠y} exp z_j and, if asked for, Σ_{j≠y} z_j; exact, in chunks. The cosine has a closed form, hooks go through autograd."""
    parts: Any
    keep = len(labels) * scores.num_classes <= KEEP
    if is_plain(scores):
        parts = CosineParts(scores.sub_centers, not scores.weight_norm, scores.matmul_dtype, keep)
        tensors = [x.scaled]
    else:
        parts = HookedParts(scores, keep)
        tensors = [x.directions, x.norms, x.scale, target, *parts.parameters]
    lse, total = _LogSumExp.apply(parts, labels, chunk, with_total, weight, bias, *tensors)
    return lse, total


class _Rows(torch.autograd.Function):
    """weight[labels], and the weight itself; in the backward pass the rows are added to the gradient that arrives for the latter."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, labels: Tensor, sub_centers: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(labels)
        ctx.sub_centers = sub_centers
        return weight.unflatten(0, (-1, sub_centers))[labels], weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, rows: Tensor, rest: Tensor) -> tuple[Tensor, None, None]:
        (labels,) = ctx.saved_tensors
        # In place: the only other holder of this gradient is _LogSumExp, which has just made it.
        rest.unflatten(0, (-1, ctx.sub_centers)).index_add_(0, labels, rows)
        return rest, None, None


class _LogSumExp(torch.autograd.Function):
    """The sum over chunks with a running maximum; ``parts`` knows the logits of a chunk and how to pull a gradient back through them."""

    @staticmethod
    def forward(
        ctx: Any,
        parts: Any,
        labels: Tensor,
        chunk: int,
        with_total: bool,
        weight: Tensor,
        bias: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        peak = torch.full_like(tensors[0][:, 0], torch.finfo(tensors[0].dtype).min / 2)
        mass, total = torch.zeros_like(peak), torch.zeros_like(peak)
        parts.open(weight, peak.dtype)
        for part in _parts(len(weight) // parts.sub_centers, chunk):
            z = parts.logits(part, weight, bias, *tensors)
            if with_total:
                total += _fill(z, labels, part, 0.0).sum(-1)
            new = torch.maximum(peak, _fill(z, labels, part, -torch.inf).amax(-1))
            mass = mass * (peak - new).exp_() + (z - new.unsqueeze(-1)).exp_().sum(-1)
            peak = new
            parts.keep(part, _fill(z, labels, part, 0.0))
        lse = peak + mass.log_()
        ctx.save_for_backward(labels, lse, weight, bias, *tensors)
        ctx.parts, ctx.chunk, ctx.with_total = parts, chunk, with_total
        return lse, total

    @staticmethod
    def backward(ctx: Any, g_lse: Tensor, g_total: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a head in chunks has first derivatives only; chunk=None can be differentiated twice (create_graph=True)"
            )
        labels, lse, weight, bias, *tensors = ctx.saved_tensors
        parts = ctx.parts
        parts.open_backward(weight, bias, ctx.needs_input_grad[4:], *tensors)
        for part in _parts(len(weight) // parts.sub_centers, ctx.chunk):
            z = parts.logits_again(part, weight, bias, *tensors)
            d = (z - lse.unsqueeze(-1)).exp_().mul_(g_lse.unsqueeze(-1))
            if ctx.with_total:
                d += g_total.unsqueeze(-1)
            parts.pull(part, z, _fill(d, labels, part, 0.0), weight, bias, *tensors)
        return (None, None, None, None, *parts.close())


def _parts(classes: int, chunk: int) -> Iterator[slice]:
    return (slice(start, min(start + chunk, classes)) for start in range(0, classes, chunk))


def _fill(z: Tensor, labels: Tensor, part: slice, value: float) -> Tensor:
    """Write ``value`` at the target of every sample whose class is in this part, without asking the device which those are."""
    local = labels - part.start
    inside = (local >= 0) & (local < z.shape[1])
    column = local.clamp(0, z.shape[1] - 1).unsqueeze(-1)
    return z.scatter_(1, column, z.gather(1, column).masked_fill_(inside.unsqueeze(-1), value))
