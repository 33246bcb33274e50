r"""Chunked: a block of classes at a time, for heads with very many classes or some of the classes only.

**What is computed.** The comparison needs a summary of the other classes' logits, such as log Σ exp z. It is accumulated
block by block. Above :data:`MAX_KEPT_LOGITS` logits, neither they nor a normalized copy of the weight is ever built: the
backward pass computes each block's logits again, unless recomputing is expensive because each class has several centers
and the logits are small beside the weight. What remains in memory is the gradient itself, one inverse norm per row of the
weight, and a few buffers of N×chunk.

**How the gradient flows back.** The comparison turns ∂L/∂summary into ∂L/∂z of one block, and a :class:`BlockLogits`
carries that to the weight, the bias and the batch. The target's own logit, with its margin, is plain autograd on N numbers:
:func:`gather_target_rows` gathers the N rows it needs and returns the weight itself beside them, so that their gradients are
added to the rows of the one large gradient instead of filling another.

**Subsets.** The rows may be a :class:`~hypersphere.objectives.engine.ClassSubset` of all classes, whose other rows are on
other processes or not used in this step. What the processes have found is then combined: the margin's ``hardest`` and the
comparison's state, tensors of the batch's length. Labels, the target's cosine and the features are those of the whole
batch, the same on every process. The summary, and so the loss, is then the same on every process; the gradients of the
weight and the bias belong to the rows here, and those of everything else are this process's share.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from ...geometry import accumulation_dtype, inverse_norm, matmul, norm
from ..comparisons.comparison_loss import Comparison, Summary
from ..margins.margin import Context, Sloped, draw_noise
from .problem import ALL_CLASSES, ClassSubset, LossProblem, ScoreFunction, is_plain, select_angular
from .scores import (
    MIN_NORM,
    BatchFeatures,
    TargetProducts,
    compute_target,
    compute_target_logit,
    compute_target_products,
    find_nearest_centers,
    prepare_features,
    scatter_to_centers,
    score_cosines,
    score_cosines_with_slope,
    set_noise,
    sum_by_center,
)

MAX_KEPT_LOGITS = 2**21
"""Up to this many logits are kept for the backward pass instead of being computed again: 8 MiB in float32."""
KEPT_SHARE_OF_WEIGHT = 8
"""With several centers per class, whose products cost as many times more to compute again, logits are also kept if they
take no more than this part (an eighth) of the memory of the weight."""


def compute_chunked(problem: LossProblem, chunk: int) -> Float[Tensor, "n"]:
    """Return the loss of each sample, ``chunk`` classes at a time. It is a LossMethod."""
    scores, labels, subset, scale = problem.scores, problem.labels, problem.subset, problem.scale
    dtype = accumulation_dtype(problem.batch.features, problem.weight)
    x = prepare_features(problem.batch.features.to(dtype), scale, labels, problem.ignored)
    x = set_noise(x, draw_noise(scores.margin, x.norms))
    share = x
    if subset.processes is not None:
        own_scale = subset.as_share(scale) if isinstance(scale, Tensor) else scale
        share = prepare_features(problem.batch.share.to(dtype), own_scale, labels, problem.ignored)
        share = set_noise(share, x.noise)
    positions, here = subset.locate(labels)
    rows, weight = gather_target_rows(problem.weight, positions, scores.sub_centers)
    found = _sum_target_products(compute_target_products(scores, share, rows.to(dtype)), here, subset)
    g = select_angular(scores, labels)
    target = compute_target(x, found, g)
    logit, bias = compute_target_logit(scores, x, target, g, problem.annealing), problem.bias
    if bias is not None:
        logit, bias = _add_bias(logit, bias.to(dtype), positions, here, subset)
    summary = summarize_others(scores, problem.comparison, share, weight, bias, target.cos, chunk, subset)
    loss = problem.comparison.loss(logit, summary, scores.num_classes if subset.total is None else subset.total)
    penalty = scores.margin.penalty(Context(g, x.norms, labels, problem.ignored, target.cos, noise=x.noise))
    return loss if penalty is None else loss + penalty


def gather_target_rows(
    weight: Float[Tensor, "ck d"], positions: Int[Tensor, "n"], sub_centers: int
) -> tuple[Tensor, Tensor]:
    """Return the rows of the target classes, (n, K, d), and the weight to use for the other classes."""
    if not len(weight):
        return weight.new_zeros(len(positions), sub_centers, weight.shape[1]), weight
    rows, rest = _GatherTargetRows.apply(weight, positions.clamp(0, len(weight) // sub_centers - 1), sub_centers)
    return rows, rest


def _sum_target_products(found: TargetProducts, here: Tensor | None, subset: ClassSubset) -> TargetProducts:
    """Return the products with the targets' rows, from whichever process holds them."""
    if subset.processes is None or here is None:
        return found
    known = torch.stack([term for term in (found.cos, found.product, found.length) if term is not None])
    cos, *others = subset.sum_shares(known.masked_fill(~here, 0))
    length = None if found.length is None else others.pop()
    return TargetProducts(None if found.product is None else others.pop(), cos, length)


def _add_bias(
    logit: Tensor, bias: Tensor, positions: Tensor, here: Tensor | None, subset: ClassSubset
) -> tuple[Tensor, Tensor]:
    """Return the target's logit with its bias, and one bias for every class at hand."""
    if bias.ndim == 0 or (subset.is_whole and len(bias) == 1):
        return logit + bias, subset.as_share(bias).expand(subset.size)
    if here is None:
        return logit + bias[positions], bias
    own = bias[positions.clamp(0, subset.size - 1)] if subset.size else logit.new_zeros(len(logit))
    return logit + subset.sum_shares(own.masked_fill(~here, 0)), bias


def summarize_others(
    scores: ScoreFunction,
    comparison: Comparison,
    x: BatchFeatures,
    weight: Float[Tensor, "ck d"],
    bias: Float[Tensor, "c"] | None,
    target: Float[Tensor, "n"],
    chunk: int,
    subset: ClassSubset,
) -> Summary:
    """Return the comparison's exact summary of all classes but each sample's own, ``chunk`` classes at a time.

    Plain cosines have a closed form; hooks are differentiated from the cosines on.
    """
    assert x.labels is not None
    positions, here = subset.locate(x.labels)
    positions = positions if here is None else positions.masked_fill(~here, -1)
    small = scores.sub_centers > 1 and KEPT_SHARE_OF_WEIGHT * len(positions) <= scores.sub_centers * weight.shape[1]
    keep = len(positions) * subset.size <= MAX_KEPT_LOGITS or small
    logits: BlockLogits
    batch: tuple[Tensor, ...]
    if is_plain(scores):
        logits, batch = CosineLogits(scores.sub_centers, not scores.weight_norm, scores.matmul_dtype), (x.scaled,)
    else:
        hardest = _find_hardest(scores, x, weight, positions, chunk, subset) if scores.margin.hardest else None
        hooked = MarginLogits(scores, x, target, hardest, subset)
        logits, batch = hooked, hooked.batch
    summary: Summary = _SummarizeOthers.apply(logits, comparison, positions, chunk, keep, subset, weight, bias, *batch)
    return summary


class Block(NamedTuple):
    """What the forward pass leaves for the backward pass of a block of c classes.

    Attributes:
        inverse: 1/‖w‖ of the rows, (c, K), or None where the products are not normalized. Always kept: it is small.
        products: The products of the features with the (normalized) rows, the largest of K; None when it is not kept.
        nearest: Which of the K sub-centers that was; None for K = 1 and when it is not kept.
    """

    inverse: Float[Tensor, "c k"] | None
    products: Float[Tensor, "n c"] | None = None
    nearest: Tensor | None = None


class Inputs(NamedTuple):
    """Everything the logits depend on: rows of the weight (c·K, d), one bias per class, and tensors of the batch.

    The first of ``batch`` is (n, d), the features that are compared with the rows; an implementation defines the rest.
    """

    weight: Float[Tensor, "ck d"]
    bias: Float[Tensor, "c"] | None
    batch: tuple[Tensor, ...]


@dataclass
class Gradients:
    """Where the backward pass of every block writes (weight, bias) or adds (batch); None where none is needed."""

    weight: Tensor | None
    bias: Tensor | None
    batch: list[Tensor | None]

    @classmethod
    def allocate(cls, inputs: Inputs, needs: Sequence[bool]) -> "Gradients":
        """Allocate the gradients of the inputs that need one; every class's rows are written by exactly one block."""
        bias = inputs.bias
        return cls(
            torch.empty_like(inputs.weight) if needs[0] else None,
            torch.empty_like(bias) if bias is not None and needs[1] else None,
            [torch.zeros_like(t) if need else None for t, need in zip(inputs.batch, needs[2:], strict=True)],
        )


@runtime_checkable
class BlockLogits(Protocol):
    """The logits of a block of classes, and their derivative.

    An implementation holds settings only: what the backward pass needs is in the :class:`Block` that
    :meth:`compute_block` returned. Blocks are independent of each other, so they may be computed in any order, again, or
    on another process; what they share, such as the target's cosine, is in ``inputs.batch``.
    """

    sub_centers: int

    def compute_block(self, part: slice, inputs: Inputs, inverse: Tensor | None = None) -> Block:
        """Return the products of the classes in ``part``; ``inverse`` are their inverse norms, if already known."""

    def compute_logits(self, part: slice, block: Block, inputs: Inputs) -> Float[Tensor, "n c"]:
        """Return z of the classes in ``part``; it may be the block's ``products`` themselves."""

    def propagate(
        self,
        part: slice,
        block: Block,
        inputs: Inputs,
        slope: Callable[[Tensor], Tensor],
        gradients: Gradients,
    ) -> None:
        """Compute z again, get ∂L/∂z from ``slope``, and carry it to ``gradients``."""


class CosineLogits:
    r"""z = a·w/‖w‖ + b (or a·w + b), the largest over sub-centers, and its gradient, for features a = scale·x̂.

    .. math:: ∂z/∂a = w/‖w‖,\quad ∂z/∂w = a/‖w‖ − (z − b)·w/‖w‖²

    so with D = ∂L/∂z the block's gradients are two matrix products of D/‖w‖ and one scaled copy of w, written in place.
    The batch of these :class:`BlockLogits` is a alone.

    Args:
        sub_centers: K rows of the weight per class.
        normalized: Whether the rows are divided by their lengths.
        matmul_dtype: The dtype of the matrix products; None for that of the features.
        bounded: Whether rows shorter than ``MIN_NORM`` get the gradient of one of that length.
    """

    def __init__(self, sub_centers: int, normalized: bool, matmul_dtype: torch.dtype | None, bounded: bool = True):
        self.sub_centers, self.normalized, self.matmul_dtype = sub_centers, normalized, matmul_dtype
        self.min_norm = MIN_NORM if bounded else 0.0

    def compute_block(self, part: slice, inputs: Inputs, inverse: Tensor | None = None) -> Block:
        """Return the products of the classes in ``part``, and in ``nearest`` which sub-center each came from."""
        a, rows = inputs.batch[0], self._select_rows(inputs.weight, part).to(inputs.batch[0].dtype)
        if self.normalized and inverse is None:
            inverse = inverse_norm(rows)
        # The memory runs over the samples first: the nearest center is found along it, and so are sums over classes.
        each = self._matmul(rows.flatten(0, 1), a.T)
        if inverse is not None:
            each.mul_(inverse.view(-1, 1))
        z, nearest = find_nearest_centers(each.T, self.sub_centers)
        # One number per logit is kept, so its dtype is the smallest that counts the centers.
        index_dtype = torch.int8 if self.sub_centers <= 127 else torch.int16
        return Block(inverse, z, None if nearest is None else nearest.to(index_dtype))

    def compute_logits(self, part: slice, block: Block, inputs: Inputs) -> Float[Tensor, "n c"]:
        """Return z of the classes in ``part``: the products, and a new tensor only where there is a bias."""
        assert block.products is not None
        return block.products if inputs.bias is None else block.products + inputs.bias[part]

    def propagate(
        self,
        part: slice,
        block: Block,
        inputs: Inputs,
        slope: Callable[[Tensor], Tensor],
        gradients: Gradients,
    ) -> None:
        """Carry ∂L/∂z to a, w and b."""
        d = slope(self.compute_logits(part, block, inputs))
        if gradients.bias is not None:
            torch.sum(d, 0, out=gradients.bias[part])
        self.propagate_products(part, block, inputs, d, gradients)

    def propagate_products(self, part: slice, block: Block, inputs: Inputs, d: Tensor, gradients: Gradients) -> None:
        """Carry ∂L/∂products to a and w; ``d`` is overwritten."""
        a, d_a = inputs.batch[0], gradients.batch[0]
        assert block.products is not None
        rows = self._select_rows(inputs.weight, part).flatten(0, 1).to(a.dtype)
        each = d if block.nearest is None else scatter_to_centers(d, block.nearest, self.sub_centers)
        inverse = None if block.inverse is None else block.inverse.flatten()
        if gradients.weight is not None:
            along = None if inverse is None else sum_by_center(each, block.products, self.sub_centers)
            out = self._select_rows(gradients.weight, part).flatten(0, 1)
            self._propagate_to_rows(out, each, along, rows, a, inverse)
        if d_a is not None:
            d_a += self._matmul(each if inverse is None else each.mul_(inverse), rows)

    def _propagate_to_rows(
        self,
        out: Tensor,
        d: Tensor,
        along: Tensor | None,
        rows: Tensor,
        a: Tensor,
        inverse: Tensor | None,
    ) -> None:
        """Write (Dᵀa − (Dᵀz)·w/‖w‖²)/‖w‖ into ``out``."""
        direct = out.dtype == a.dtype and self.matmul_dtype is None
        result = torch.mm(d.T, a, out=out) if direct else self._matmul(d.T, a)
        if inverse is not None and along is not None:
            # As normalize(w, min_norm=…): the gradient of a shorter row is that of one of this length. One factor of
            # 1/‖w‖ at a time: their square may leave the range.
            bounded = inverse * (1 / (self.min_norm * inverse)).clamp_max(1)
            # A factor of 1e33 is as large as float32 allows beside the sums; rows shorter than 1e-33 have rounded directions.
            result.addcmul_(rows, along.mul_(inverse.clamp_max(1e33)).neg_().unsqueeze(-1)).mul_(bounded.unsqueeze(-1))
        if not direct:
            out.copy_(result)

    def _matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return (
            matmul(a, b)
            if self.matmul_dtype is None
            else (a.to(self.matmul_dtype) @ b.to(self.matmul_dtype)).to(a.dtype)
        )

    def _select_rows(self, weight: Tensor, part: slice) -> Tensor:
        return weight.unflatten(0, (-1, self.sub_centers))[part]


class MarginLogits:
    """The logits of a block whose scores go through hooks, with any φ and any g, by the same definition as the dense way.

    The cosines and their derivative are those of :class:`CosineLogits`. From the cosines on, :meth:`propagate` uses the
    slopes of the hooks, or builds a graph of one block and differentiates it with autograd. Learned parameters of the
    margin and of g get their gradients; buffers are copied when this object is made, because a margin may update its
    statistics before the backward pass runs.

    Args:
        scores: The hooks and how they are used.
        x: The batch.
        target: cos θ of each sample's own class.
        hardest: The k-th largest cosine of the other classes, if the margin asks for it.
        subset: Which classes the rows are; by default all.
    """

    def __init__(
        self,
        scores: ScoreFunction,
        x: BatchFeatures,
        target: Tensor,
        hardest: Tensor | None = None,
        subset: ClassSubset = ALL_CLASSES,
    ):
        self.cosines = CosineLogits(scores.sub_centers, True, scores.matmul_dtype, bounded=not scores.weight_norm)
        self.sub_centers, self.weight_norm = scores.sub_centers, scores.weight_norm
        self.hooks, self.subset = _Hooks(scores), subset
        named = dict(self.hooks.named_parameters())
        self.names = list(named)
        self.buffers = {name: buffer.clone() for name, buffer in self.hooks.named_buffers()}
        self.labels, self.ignored, self.noise = x.labels, x.ignored, x.noise
        self.hardest = None if hardest is None else hardest.detach()
        self.batch = (x.directions, x.norms, x.scale, *[subset.as_share(t) for t in (target, *named.values())])

    def compute_block(self, part: slice, inputs: Inputs, inverse: Tensor | None = None) -> Block:
        """Return the cosines of the classes in ``part``."""
        return self.cosines.compute_block(part, inputs, inverse)

    def compute_logits(self, part: slice, block: Block, inputs: Inputs) -> Float[Tensor, "n c"]:
        """Return z of the classes in ``part``, a new tensor."""
        assert block.products is not None
        bias = None if inputs.bias is None else inputs.bias[part]
        z: Tensor = self._call(part, block.products, self._compute_lengths(part, inputs), bias, inputs.batch)
        return z

    def propagate(
        self,
        part: slice,
        block: Block,
        inputs: Inputs,
        slope: Callable[[Tensor], Tensor],
        gradients: Gradients,
    ) -> None:
        """Carry ∂L/∂z to the cosines and on to the weights, and to everything else the scores depend on."""
        assert block.products is not None
        if self._propagate_with_slope(part, block, inputs, slope, gradients):
            return
        cos = block.products.detach().requires_grad_()
        lengths = self._compute_lengths(part, inputs)
        bias = None if inputs.bias is None else inputs.bias[part].detach()
        # The directions act through the cosines alone; what remains are norms, scale, target and the parameters.
        pairs = zip(inputs.batch[1:], gradients.batch[1:], strict=True)
        leaves = [t.detach().requires_grad_(total is not None) for t, total in pairs]
        if lengths is not None:
            lengths.requires_grad_()
        if bias is not None:
            bias.requires_grad_(gradients.bias is not None)
        with torch.enable_grad():
            z = self._call(part, cos, lengths, bias, (inputs.batch[0], *leaves))
        wanted = [t for t in (cos, lengths, bias, *leaves) if t is not None and t.requires_grad]
        found = torch.autograd.grad(z, wanted, slope(z.detach()), allow_unused=True)
        by_id = {id(t): g for t, g in zip(wanted, found, strict=True) if g is not None}
        self.cosines.propagate_products(part, block, inputs, by_id[id(cos)], gradients)
        d_lengths = by_id.get(id(lengths))
        if gradients.weight is not None and d_lengths is not None and block.inverse is not None:
            along = d_lengths * block.inverse.squeeze(-1)
            gradients.weight[part].addcmul_(inputs.weight[part], along.unsqueeze(-1).to(inputs.weight.dtype))
        if gradients.bias is not None:
            gradients.bias[part] = by_id[id(bias)]
        for leaf, total in zip(leaves, gradients.batch[1:], strict=True):
            if total is not None and id(leaf) in by_id:
                total += by_id[id(leaf)]

    def _propagate_with_slope(
        self, part: slice, block: Block, inputs: Inputs, slope: Callable[[Tensor], Tensor], gradients: Gradients
    ) -> bool:
        """Return Do the same without a graph if φ knows its slope and the scale is constant; return False if not."""
        assert block.products is not None
        scale = inputs.batch[2].unsqueeze(-1)
        if self.weight_norm or gradients.batch[2] is not None or self.names:
            return False
        found = self._call(part, block.products, None, None, inputs.batch, with_slope=True)
        if found is None:
            return False
        z, by_cos = found[0] * scale, found[1]
        d = slope(z if inputs.bias is None else z.add_(inputs.bias[part]))
        if gradients.bias is not None:
            torch.sum(d, 0, out=gradients.bias[part])
        self.cosines.propagate_products(part, block, inputs, d.mul_(by_cos.mul_(scale)), gradients)
        return True

    def _compute_lengths(self, part: slice, inputs: Inputs) -> Tensor | None:
        return norm(inputs.weight[part].detach().to(inputs.batch[0].dtype)) if self.weight_norm else None

    def _call(
        self,
        part: slice,
        cos: Tensor,
        lengths: Tensor | None,
        bias: Tensor | None,
        batch: tuple[Tensor, ...],
        with_slope: bool = False,
    ) -> Any:
        """Call the hooks with the buffers of the forward pass and the parameters in ``batch``."""
        directions, norms, scale, target, *own = batch
        x = BatchFeatures(directions, norms, scale, directions, self.labels, self.ignored, self.noise)
        state = {**self.buffers, **dict(zip(self.names, own, strict=True))}
        given = (self.subset.select(part), cos, lengths, bias, x, target, self.hardest, with_slope)
        return functional_call(self.hooks, state, given)


class _Hooks(nn.Module):
    """The modules behind the scores, so that they can be called with other parameters and buffers than they hold."""

    def __init__(self, scores: ScoreFunction):
        super().__init__()
        self.margin, self.angular, self.scores = scores.margin, scores.angular, scores

    def forward(
        self,
        classes: slice | Tensor,
        cos: Tensor,
        lengths: Tensor | None,
        bias: Tensor | None,
        x: BatchFeatures,
        target: Tensor,
        hardest: Tensor | None,
        with_slope: bool,
    ) -> Tensor | Sloped | None:
        if with_slope:
            return score_cosines_with_slope(self.scores, classes, cos, x, target, hardest)
        return score_cosines(self.scores, classes, cos, lengths, bias, x, target, hardest)


class _GatherTargetRows(torch.autograd.Function):
    """weight[labels], and the weight itself; backward adds the rows to the gradient that arrives for the latter."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, labels: Tensor, sub_centers: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(labels)
        ctx.sub_centers = sub_centers
        return weight.unflatten(0, (-1, sub_centers))[labels], weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, rows: Tensor, rest: Tensor) -> tuple[Tensor, None, None]:
        (labels,) = ctx.saved_tensors
        # In place: the only other holder of this gradient is _SummarizeOthers, which has just made it.
        rest.unflatten(0, (-1, ctx.sub_centers)).index_add_(0, labels, rows)
        return rest, None, None


class _SummarizeOthers(torch.autograd.Function):
    """The blocks one after the other: forward into the comparison's state, backward from its summary."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: BlockLogits,
        comparison: Comparison,
        labels: Tensor,
        chunk: int,
        keep: bool,
        subset: ClassSubset,
        weight: Tensor,
        bias: Tensor | None,
        *batch: Tensor,
    ) -> Summary:
        inputs, num_classes = Inputs(weight, bias, batch), len(weight) // logits.sub_centers
        state, blocks, storage = comparison.start(batch[0][:, 0]), [], _BlockStorage(num_classes)
        for part in _split_classes(num_classes, chunk):
            block = logits.compute_block(part, inputs)
            z = logits.compute_logits(part, block, inputs)
            counts = None if subset.counts is None else subset.counts[part]
            state = comparison.add(state, _fill_targets(z, labels, part, -torch.inf), counts)
            # The products may be z itself; a slope of 0 times −∞ would be NaN.
            _fill_targets(z, labels, part, 0.0)
            blocks.append(storage.store(block, part) if keep else Block(block.inverse))
        others = subset.processes
        summary = comparison.finish(state if others is None else comparison.reduce(state, others))
        ctx.save_for_backward(labels, weight, bias, *batch, *summary)
        ctx.logits, ctx.comparison, ctx.chunk, ctx.blocks, ctx.of_batch = logits, comparison, chunk, blocks, len(batch)
        ctx.counts = subset.counts
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
        found = Gradients.allocate(inputs, ctx.needs_input_grad[6:])
        for part, block in zip(_split_classes(len(weight) // logits.sub_centers, ctx.chunk), ctx.blocks, strict=True):
            whole = logits.compute_block(part, inputs, block.inverse) if block.products is None else block
            slope = _bind_slope(ctx.comparison, summary, gradients, labels, part, ctx.counts)
            logits.propagate(part, whole, inputs, slope, found)
        return (None, None, None, None, None, None, found.weight, found.bias, *found.batch)


class _BlockStorage:
    """One tensor for what is kept of all blocks with several centers.

    Many small tensors that stay, between the larger ones that a block needs for a moment, would fragment the memory and
    waste twice their size.
    """

    def __init__(self, classes: int):
        self.classes = classes
        self.products: Tensor | None = None
        self.nearest: Tensor | None = None

    def store(self, block: Block, part: slice) -> Block:
        """Return the same block in this storage; a block with one center stays where it is, because it fits exactly."""
        products, nearest = block.products, block.nearest
        if products is None or nearest is None:
            return block
        if self.products is None or self.nearest is None:
            self.products, self.nearest = (t.new_empty(self.classes, len(t)) for t in (products, nearest))
        return Block(block.inverse, self.products[part].copy_(products.T).T, self.nearest[part].copy_(nearest.T).T)


def _bind_slope(
    comparison: Comparison, summary: Summary, gradients: Summary, labels: Tensor, part: slice, counts: Tensor | None
) -> Callable[[Tensor], Tensor]:
    """Return the function from z to ∂L/∂z of a block, 0 at the targets, whose logit is not among the others."""
    mine = None if counts is None else counts[part]
    return lambda z: _fill_targets(comparison.slope(z, summary, gradients, mine), labels, part, 0.0)


@torch.no_grad()
def _find_hardest(
    scores: ScoreFunction, x: BatchFeatures, weight: Tensor, labels: Tensor, chunk: int, subset: ClassSubset
) -> Float[Tensor, "n"]:
    """Return the k-th largest cosine among the other classes, by one pass over the blocks."""
    k = scores.margin.hardest
    cosines = CosineLogits(scores.sub_centers, True, scores.matmul_dtype)
    top = torch.full_like(x.norms, -torch.inf).unsqueeze(-1).expand(-1, k)
    for part in _split_classes(len(weight) // scores.sub_centers, chunk):
        cos = cosines.compute_block(part, Inputs(weight, None, (x.directions,))).products
        assert cos is not None
        top = torch.cat([top, _fill_targets(cos, labels, part, -torch.inf)], -1).topk(k, -1).values
    return (top if subset.processes is None else subset.processes(top.contiguous(), "top"))[:, -1]


def _split_classes(classes: int, chunk: int) -> Iterator[slice]:
    return (slice(start, min(start + chunk, classes)) for start in range(0, classes, chunk))


def _fill_targets(z: Tensor, labels: Tensor, part: slice, value: float) -> Tensor:
    """Write ``value`` at the target of every sample whose class is in this part, without a mask of which those are."""
    local = labels - part.start
    inside = (local >= 0) & (local < z.shape[1])
    column = local.clamp(0, z.shape[1] - 1).unsqueeze(-1)
    return z.scatter_(1, column, z.gather(1, column).masked_fill_(inside.unsqueeze(-1), value))
