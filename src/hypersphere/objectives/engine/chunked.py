r"""Losses in chunks: a block of classes at a time, for heads with very many classes or a subset of the classes.

**What is computed.** The comparison needs a summary of the other classes' logits, such as log Σ exp z. The forward pass
accumulates it block by block, and never builds a normalized copy of the weight. Up to :data:`MAX_KEPT_LOGITS` logits are kept for
the backward pass; more are computed again, block by block. With several centers per class, computing them again is expensive, so
more logits are kept if they are small compared with the weight. The memory needed is the gradient of the weight, one inverse
norm per row, and a few buffers of N×chunk numbers.

**The backward pass.** The comparison computes ∂L/∂z of one block from ∂L/∂summary, and a :class:`BlockLogits` propagates it to
the weight, the bias and the batch. The target's logit, with its margin, is differentiated by autograd; it consists of N numbers.
:func:`gather_target_rows` returns the N weight rows for it, together with the weight itself. Its backward pass adds the gradients
of these rows to the gradient of the weight in place, so no second tensor of the weight's size is allocated.

**Subsets.** The rows may belong to a :class:`~hypersphere.objectives.engine.ClassSubset`; the other rows are on other
processes, or not used in this step. The processes then combine the margin's ``hardest`` and the comparison's state, which
are tensors of the batch's length. Every process has the labels, features and target cosines of the whole batch, so all
processes get the same summary and the same loss. The gradients of the weight and the bias belong to the local rows;
all other gradients are this process's share, to be summed over the processes.
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
from ..margins.margin import Sloped, draw_noise
from .problem import ALL_CLASSES, ClassSubset, LossProblem, ScoreFunction, is_plain, select_angular
from .scores import (
    MIN_NORM,
    BatchFeatures,
    TargetProducts,
    add_penalty,
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
"""The forward pass keeps up to this many logits for the backward pass: 8 MiB in float32."""
KEPT_SHARE_OF_WEIGHT = 8
"""With K > 1 centers per class, computing the logits again costs K times as much. More logits than ``MAX_KEPT_LOGITS`` are then
kept if they take at most 1/8 of the memory of the weight."""


def compute_chunked(problem: LossProblem, chunk: int) -> Float[Tensor, "n"]:
    """Return the loss of each sample, computed from ``chunk`` classes at a time; a LossMethod."""
    scores, labels, subset, scale = problem.scores, problem.labels, problem.subset, problem.scale
    dtype = accumulation_dtype(problem.batch.features, problem.weight)
    x = prepare_features(problem.batch.features.to(dtype), scale, labels, problem.ignored)
    x = set_noise(x, draw_noise(scores.margin, x.norms))
    share = x  # the same values; their gradients are summed over the processes
    if subset.processes is not None:
        share_scale = subset.as_share(scale) if isinstance(scale, Tensor) else scale
        share = prepare_features(problem.batch.share.to(dtype), share_scale, labels, problem.ignored)
        share = set_noise(share, x.noise)
    positions, is_local = subset.locate(labels)
    rows, weight = gather_target_rows(problem.weight, positions, scores.sub_centers)
    products = _sum_target_products(compute_target_products(scores, share, rows.to(dtype)), is_local, subset)
    g = select_angular(scores, labels)
    target = compute_target(x, products, g)
    logit, bias = compute_target_logit(scores, x, target, g, problem.annealing), problem.bias
    if bias is not None:
        logit, bias = _add_bias(logit, bias.to(dtype), positions, is_local, subset)
    summary = summarize_others(scores, problem.comparison, share, weight, bias, target.cos, chunk, subset)
    loss = problem.comparison.loss(logit, summary, scores.num_classes if subset.total is None else subset.total)
    return add_penalty(scores, loss, x, g, target.cos)


def gather_target_rows(
    weight: Float[Tensor, "ck d"], positions: Int[Tensor, "n"], sub_centers: int
) -> tuple[Tensor, Tensor]:
    """Return the rows of the target classes, (n, K, d), and the weight, which must be used for the other classes."""
    if not len(weight):
        return weight.new_zeros(len(positions), sub_centers, weight.shape[1]), weight
    rows, whole = _GatherTargetRows.apply(weight, positions.clamp(0, len(weight) // sub_centers - 1), sub_centers)
    return rows, whole


def _sum_target_products(products: TargetProducts, is_local: Tensor | None, subset: ClassSubset) -> TargetProducts:
    """Return the products of all samples with their target rows, each from the process that holds the row."""
    if subset.processes is None or is_local is None:
        return products
    stacked = torch.stack([t for t in (products.cos, products.product, products.length) if t is not None])
    cos, *others = subset.sum_shares(stacked.masked_fill(~is_local, 0))
    length = None if products.length is None else others.pop()
    return TargetProducts(None if products.product is None else others.pop(), cos, length)


def _add_bias(
    logit: Tensor, bias: Tensor, positions: Tensor, is_local: Tensor | None, subset: ClassSubset
) -> tuple[Tensor, Tensor]:
    """Return the target's logit with its bias, and one bias per class of the subset."""
    if bias.ndim == 0 or (subset.is_whole and len(bias) == 1):
        return logit + bias, subset.as_share(bias).expand(subset.size)
    if is_local is None:
        return logit + bias[positions], bias
    target_bias = bias[positions.clamp(0, subset.size - 1)] if subset.size else logit.new_zeros(len(logit))
    return logit + subset.sum_shares(target_bias.masked_fill(~is_local, 0)), bias


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
    """Return the comparison's exact summary of all classes except each sample's target, ``chunk`` classes at a time.

    Plain cosines use :class:`CosineLogits`, margins and angular functions :class:`MarginLogits`.
    """
    assert x.labels is not None
    positions, is_local = subset.locate(x.labels)
    positions = positions if is_local is None else positions.masked_fill(~is_local, -1)
    keep_centers = (
        scores.sub_centers > 1 and KEPT_SHARE_OF_WEIGHT * len(positions) <= scores.sub_centers * weight.shape[1]
    )
    keep = len(positions) * subset.size <= MAX_KEPT_LOGITS or keep_centers
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
    """The result of a block of c classes, and what is kept of it for the backward pass.

    Attributes:
        inverse: 1/‖w‖ of the rows, (c, K), or None if products are not normalized. It is small and always kept.
        products: The largest of the K products of each sample and class; None if not kept.
        nearest: Index of the sub-center with the largest product; None for K = 1 or if not kept.
    """

    inverse: Float[Tensor, "c k"] | None
    products: Float[Tensor, "n c"] | None = None
    nearest: Tensor | None = None


class Inputs(NamedTuple):
    """The differentiable inputs of the logits: weight rows (c·K, d), one bias per class, and tensors of the batch.

    The first tensor of ``batch`` contains the features (n, d) to multiply with the rows. Each :class:`BlockLogits` defines the
    other tensors.
    """

    weight: Float[Tensor, "ck d"]
    bias: Float[Tensor, "c"] | None
    batch: tuple[Tensor, ...]


@dataclass
class Gradients:
    """Gradients of the inputs, None if not needed. Each block writes its part of weight and bias, and adds to batch."""

    weight: Tensor | None
    bias: Tensor | None
    batch: list[Tensor | None]

    @classmethod
    def allocate(cls, inputs: Inputs, needs: Sequence[bool]) -> "Gradients":
        """Allocate the gradients that are needed. Weight and bias stay uninitialized: exactly one block writes each row."""
        bias = inputs.bias
        return cls(
            torch.empty_like(inputs.weight) if needs[0] else None,
            torch.empty_like(bias) if bias is not None and needs[1] else None,
            [torch.zeros_like(t) if need else None for t, need in zip(inputs.batch, needs[2:], strict=True)],
        )


@runtime_checkable
class BlockLogits(Protocol):
    """The logits of a block of classes, and their derivative.

    An implementation has settings but no state. The products that the backward pass needs are in the :class:`Block`, and what
    all blocks share, such as the target's cosine, is in ``inputs.batch``. Blocks are independent, so they may be computed in
    any order, repeatedly, or on other processes.
    """

    sub_centers: int

    def compute_block(self, part: slice, inputs: Inputs, inverse: Tensor | None = None) -> Block:
        """Return the products of the classes in ``part``; ``inverse`` has the inverse norms of their rows if they are known."""

    def compute_logits(self, part: slice, block: Block, inputs: Inputs) -> Float[Tensor, "n c"]:
        """Return z of the classes in ``part``, possibly the tensor ``block.products`` itself."""

    def propagate(
        self,
        part: slice,
        block: Block,
        inputs: Inputs,
        slope: Callable[[Tensor], Tensor],
        gradients: Gradients,
    ) -> None:
        """Compute z again, get ∂L/∂z from ``slope``, and propagate it to ``gradients``."""


class CosineLogits:
    r"""z = a·w/‖w‖ + b (or a·w + b) for features a = scale·x̂, the largest one over sub-centers, and its gradient.

    .. math:: ∂z/∂a = w/‖w‖,\quad ∂z/∂w = a/‖w‖ − (z − b)·w/‖w‖²

    With D = ∂L/∂z, the gradients of a block are two matrix products with D/‖w‖, and a scaled copy of w that is subtracted in
    place. ``inputs.batch`` contains only a.

    Args:
        sub_centers: K, the number of weight rows per class.
        normalized: Whether to divide the rows by their lengths.
        matmul_dtype: The dtype of the matrix products; None for the dtype of the features.
        bounded: Whether rows shorter than ``MIN_NORM`` get the gradient of a row of that length.
    """

    def __init__(self, sub_centers: int, normalized: bool, matmul_dtype: torch.dtype | None, bounded: bool = True):
        self.sub_centers, self.normalized, self.matmul_dtype = sub_centers, normalized, matmul_dtype
        self.min_norm = MIN_NORM if bounded else 0.0

    def compute_block(self, part: slice, inputs: Inputs, inverse: Tensor | None = None) -> Block:
        """Return the largest product of each class in ``part``, the index of its sub-center, and the inverse norms."""
        a, rows = inputs.batch[0], self._select_rows(inputs.weight, part).to(inputs.batch[0].dtype)
        if self.normalized and inverse is None:
            inverse = inverse_norm(rows)
        # w·aᵀ stores the samples contiguously, which makes the maximum over centers and sums over classes fast.
        products = self._matmul(rows.flatten(0, 1), a.T)
        if inverse is not None:
            products.mul_(inverse.view(-1, 1))
        z, nearest = find_nearest_centers(products.T, self.sub_centers)
        # One index per logit is kept, so use the smallest dtype that can count the centers.
        index_dtype = torch.int8 if self.sub_centers <= 127 else torch.int16
        return Block(inverse, z, None if nearest is None else nearest.to(index_dtype))

    def compute_logits(self, part: slice, block: Block, inputs: Inputs) -> Float[Tensor, "n c"]:
        """Return z of the classes in ``part``: the products themselves, or a new tensor if there is a bias."""
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
        """Propagate ∂L/∂z to a, w and b."""
        d = slope(self.compute_logits(part, block, inputs))
        if gradients.bias is not None:
            torch.sum(d, 0, out=gradients.bias[part])
        self.propagate_products(part, block, inputs, d, gradients)

    def propagate_products(self, part: slice, block: Block, inputs: Inputs, d: Tensor, gradients: Gradients) -> None:
        """Propagate ``d`` = ∂L/∂products to a and w; ``d`` is overwritten."""
        a, d_a = inputs.batch[0], gradients.batch[0]
        assert block.products is not None
        rows = self._select_rows(inputs.weight, part).flatten(0, 1).to(a.dtype)
        d_rows = d if block.nearest is None else scatter_to_centers(d, block.nearest, self.sub_centers)
        inverse = None if block.inverse is None else block.inverse.flatten()
        if gradients.weight is not None:
            inner = None if inverse is None else sum_by_center(d_rows, block.products, self.sub_centers)
            out = self._select_rows(gradients.weight, part).flatten(0, 1)
            self._propagate_to_rows(out, d_rows, inner, rows, a, inverse)
        if d_a is not None:
            d_a += self._matmul(d_rows if inverse is None else d_rows.mul_(inverse), rows)

    def _propagate_to_rows(
        self,
        out: Tensor,
        d: Tensor,
        inner: Tensor | None,
        rows: Tensor,
        a: Tensor,
        inverse: Tensor | None,
    ) -> None:
        """Write (Dᵀa − ``inner``·w/‖w‖)/‖w‖ into ``out``; ``inner`` is Σ D·z over the samples, and is overwritten."""
        direct = out.dtype == a.dtype and self.matmul_dtype is None
        result = torch.mm(d.T, a, out=out) if direct else self._matmul(d.T, a)
        if inverse is not None and inner is not None:
            # 1/‖w‖² may overflow, so multiply by 1/‖w‖ twice. The second factor is at most 1/min_norm: a shorter row gets the
            # gradient of a row of that length, as in normalize(w, min_norm=…).
            bounded = inverse * (1 / (self.min_norm * inverse)).clamp_max(1)
            # The first factor is at most 1e33, because larger ones overflow float32 in the product with the sum.
            result.addcmul_(rows, inner.mul_(inverse.clamp_max(1e33)).neg_().unsqueeze(-1)).mul_(bounded.unsqueeze(-1))
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
    """Logits with any margin φ and any angular function g, by the definition of the dense method.

    :class:`CosineLogits` computes the cosines and their derivative. From the logits to the cosines, :meth:`propagate` uses
    the slopes of the margin's hooks if there are any; otherwise it builds a graph of one block and differentiates it by autograd.
    Learned parameters of the margin and of g get their gradients. The constructor copies the buffers, because a margin may
    update its statistics before the backward pass runs.

    Args:
        scores: The margin, g and the other settings of the logits.
        x: The batch.
        target: cos θ of each sample's target class.
        hardest: The k-th largest cosine of the other classes, if the margin uses it.
        subset: The classes of the rows; all by default.
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
        """Propagate ∂L/∂z to the weight through the cosines, and to everything else that the logits depend on."""
        assert block.products is not None
        if self._propagate_with_slope(part, block, inputs, slope, gradients):
            return
        cos = block.products.detach().requires_grad_()
        lengths = self._compute_lengths(part, inputs)
        bias = None if inputs.bias is None else inputs.bias[part].detach()
        # Logits depend on the directions, batch[0], through the cosines only. The leaves are norms, scale, target, parameters.
        pairs = zip(inputs.batch[1:], gradients.batch[1:], strict=True)
        leaves = [t.detach().requires_grad_(total is not None) for t, total in pairs]
        if lengths is not None:
            lengths.requires_grad_()
        if bias is not None:
            bias.requires_grad_(gradients.bias is not None)
        with torch.enable_grad():
            z = self._call(part, cos, lengths, bias, (inputs.batch[0], *leaves))
        variables = [t for t in (cos, lengths, bias, *leaves) if t is not None and t.requires_grad]
        results = torch.autograd.grad(z, variables, slope(z.detach()), allow_unused=True)
        by_id = {id(t): g for t, g in zip(variables, results, strict=True) if g is not None}
        self.cosines.propagate_products(part, block, inputs, by_id[id(cos)], gradients)
        d_lengths = by_id.get(id(lengths))
        if gradients.weight is not None and d_lengths is not None and block.inverse is not None:
            factor = d_lengths * block.inverse.squeeze(-1)
            gradients.weight[part].addcmul_(inputs.weight[part], factor.unsqueeze(-1).to(inputs.weight.dtype))
        if gradients.bias is not None:
            gradients.bias[part] = by_id[id(bias)]
        for leaf, total in zip(leaves, gradients.batch[1:], strict=True):
            if total is not None and id(leaf) in by_id:
                total += by_id[id(leaf)]

    def _propagate_with_slope(
        self, part: slice, block: Block, inputs: Inputs, slope: Callable[[Tensor], Tensor], gradients: Gradients
    ) -> bool:
        """Do the same without a graph, if φ has a closed-form slope and the scale is constant. Return whether it was possible."""
        assert block.products is not None
        scale = inputs.batch[2].unsqueeze(-1)
        if self.weight_norm or gradients.batch[2] is not None or self.names:
            return False
        phi = self._call(part, block.products, None, None, inputs.batch, with_slope=True)
        if phi is None:
            return False
        z, by_cos = phi[0] * scale, phi[1]
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
        """Call the hooks with the buffers from the forward pass and the parameters in ``batch``."""
        directions, norms, scale, target, *parameters = batch
        x = BatchFeatures(directions, norms, scale, directions, self.labels, self.ignored, self.noise)
        state = {**self.buffers, **dict(zip(self.names, parameters, strict=True))}
        arguments = (self.subset.select(part), cos, lengths, bias, x, target, self.hardest, with_slope)
        return functional_call(self.hooks, state, arguments)


class _Hooks(nn.Module):
    """The margin and g as one module, so that ``functional_call`` can replace their parameters and buffers."""

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
    """Return weight[labels] and the weight; the backward pass adds the rows' gradient in place to that of the weight."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, labels: Tensor, sub_centers: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(labels)
        ctx.sub_centers = sub_centers
        return weight.unflatten(0, (-1, sub_centers))[labels], weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, d_rows: Tensor, d_weight: Tensor) -> tuple[Tensor, None, None]:
        (labels,) = ctx.saved_tensors
        # Safe in place: _SummarizeOthers has just allocated this gradient, and nothing else refers to it.
        d_weight.unflatten(0, (-1, ctx.sub_centers)).index_add_(0, labels, d_rows)
        return d_weight, None, None


class _SummarizeOthers(torch.autograd.Function):
    """The summary of all blocks. Forward: add each block to the comparison's state, and finish the state.

    Backward: for each block, compute its logits again unless they were kept, get ∂L/∂z from the comparison, and propagate
    it. Entries of target classes are excluded: −∞ in the forward pass, and a gradient of 0.
    """

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
            # z may share its memory with the kept products, where 0·(−∞) in the backward pass would be NaN.
            _fill_targets(z, labels, part, 0.0)
            blocks.append(storage.store(block, part) if keep else Block(block.inverse))
        processes = subset.processes
        summary = comparison.finish(state if processes is None else comparison.reduce(state, processes))
        ctx.save_for_backward(labels, weight, bias, *batch, *summary)
        ctx.logits, ctx.comparison, ctx.chunk, ctx.blocks = logits, comparison, chunk, blocks
        ctx.batch_tensors, ctx.counts = len(batch), subset.counts
        return summary

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a head in chunks has first derivatives only; chunk=None can be differentiated twice (create_graph=True)"
            )
        labels, weight, bias, *saved = ctx.saved_tensors
        batch, summary = tuple(saved[: ctx.batch_tensors]), tuple(saved[ctx.batch_tensors :])
        inputs, logits = Inputs(weight, bias, batch), ctx.logits
        results = Gradients.allocate(inputs, ctx.needs_input_grad[6:])
        for part, block in zip(_split_classes(len(weight) // logits.sub_centers, ctx.chunk), ctx.blocks, strict=True):
            complete = logits.compute_block(part, inputs, block.inverse) if block.products is None else block
            slope = _bind_slope(ctx.comparison, summary, gradients, labels, part, ctx.counts)
            logits.propagate(part, complete, inputs, slope, results)
        return (None, None, None, None, None, None, results.weight, results.bias, *results.batch)


class _BlockStorage:
    """One tensor for the kept parts of all blocks with several centers.

    Many small tensors that are kept between larger temporary ones would fragment the memory and waste twice their size.
    """

    def __init__(self, classes: int):
        self.classes = classes
        self.products: Tensor | None = None
        self.nearest: Tensor | None = None

    def store(self, block: Block, part: slice) -> Block:
        """Copy the block into this storage. A block with one center is returned as it is: its memory fits exactly."""
        products, nearest = block.products, block.nearest
        if products is None or nearest is None:
            return block
        if self.products is None or self.nearest is None:
            self.products, self.nearest = (t.new_empty(self.classes, len(t)) for t in (products, nearest))
        return Block(block.inverse, self.products[part].copy_(products.T).T, self.nearest[part].copy_(nearest.T).T)


def _bind_slope(
    comparison: Comparison, summary: Summary, gradients: Summary, labels: Tensor, part: slice, counts: Tensor | None
) -> Callable[[Tensor], Tensor]:
    """Return a function from z to ∂L/∂z of a block, with 0 at the target classes."""
    counts = None if counts is None else counts[part]
    return lambda z: _fill_targets(comparison.slope(z, summary, gradients, counts), labels, part, 0.0)


@torch.no_grad()
def _find_hardest(
    scores: ScoreFunction, x: BatchFeatures, weight: Tensor, labels: Tensor, chunk: int, subset: ClassSubset
) -> Float[Tensor, "n"]:
    """Return the k-th largest cosine among the other classes, computed in one pass over the blocks."""
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
    """Write ``value`` in place at the target of every sample whose class is in ``part``.

    A sample whose class is in another block gets its old value at some column, so that all rows are written by one scatter.
    """
    local = labels - part.start
    is_inside = (local >= 0) & (local < z.shape[1])
    column = local.clamp(0, z.shape[1] - 1).unsqueeze(-1)
    return z.scatter_(1, column, z.gather(1, column).masked_fill_(is_inside.unsqueeze(-1), value))
