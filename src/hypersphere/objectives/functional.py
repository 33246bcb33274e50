"""The softmax family as one pure function."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..angular import AngularLike, Cosine, as_angular
from ..geometry import accumulation_dtype, full_precision
from .checks import check, counted_labels
from .comparisons import Comparison, CrossEntropy
from .few import few_losses
from .head_options import Chunk, Scale
from .large import are_few, chunk_size, rows_of, summarize_others
from .margins import Margin, NoMargin
from .margins.margin import Context, drawn_for
from .part import Everyone, Portion, added, entered, places_of
from .scores import Met, Scores, all_scores, angular_of, features_of, met_by, target_logit, target_of


def margin_softmax(
    features: Float[Tensor, "n d"],
    weight: Float[Tensor, "ck d"],
    labels: Int[Tensor, "n"],
    *,
    margin: Margin | None = None,
    angular: AngularLike | None = None,
    scale: Scale = 30.0,
    bias: Float[Tensor, "..."] | None = None,
    comparison: Comparison | None = None,
    annealing: float | Float[Tensor, ""] = 0.0,
    sub_centers: int = 1,
    gradient: Literal["exact", "detached"] = "exact",
    reduction: Literal["mean", "sum", "none"] = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    chunk: Chunk = "auto",
    matmul_dtype: torch.dtype | None = None,
) -> Float[Tensor, "..."]:
    r"""A loss over hyperspherical logits, with a margin on the target (part I, eq. 2.4, 2.20, 3.11, L_a1, L_a2).

    .. math:: L = \operatorname{mean}_i −\log \frac{e^{t_i}}{e^{t_i} + Σ_{j≠y_i} e^{z_{ij}}},\quad
        t_i = \text{scale}·ψ(θ_{y_i}) + b_{y_i},\quad z_{ij} = \text{scale}·φ(g(θ_j)) + b_j

    Args:
        features: x, any floating dtype; half precision is computed in float32, also under autocast, and gives a float32
            loss.
        weight: The class weights as rows; with ``sub_centers=K`` row c·K + k is the k-th centre of class c.
        labels: Classes in [0, C), or ``ignore_index``.
        margin: ψ and φ, an object of :mod:`hypersphere.objectives.margins`; none by default.
        angular: g, an object of :mod:`hypersphere.angular`; the cosine by default.
        scale: A number or scalar tensor s; ``"feature_norm"`` is ‖x‖; ``"norms"`` is ‖w‖‖x‖.
        bias: b, one per class, or a scalar that all classes share.
        comparison: How t is set against the z_j, an object of :mod:`hypersphere.objectives.comparisons`; by default
            the cross-entropy above.
        annealing: λ ≥ 0; the target's logit is (λ·plain + margin)/(1 + λ).
        sub_centers: K rows of the weight per class, of which the nearest counts.
        gradient: ``"exact"`` is the derivative of the loss. ``"detached"`` holds the margin's effects ψ(θ) − g(θ) and
            φ(θ) − g(θ) constant: the loss has the same value, and its gradient is the one of the plain logits under the
            margin's probabilities.
        reduction: Over the samples that are not ignored. If every label is ignored, the mean is 0.
        ignore_index: The label of samples that do not count.
        label_smoothing: ε of the cross-entropy; another comparison has none.
        chunk: How many classes at a time; the N×C logits and the normalized weights are then never built (see
            :mod:`hypersphere.objectives.large`). ``None`` is the dense path, which can be differentiated twice and
            compiled; ``"auto"`` is both as well where the logits are few (see :mod:`hypersphere.objectives.products`).
        matmul_dtype: Compute the large matrix products in this dtype (``torch.bfloat16``); full precision by default.

    Returns:
        The loss: a scalar, or one number per sample for ``reduction="none"``.

    Raises:
        ValueError: If shapes do not agree, a label is out of range or an argument has no meaning.

    >>> from hypersphere.objectives.margins import AdditiveCosine
    >>> x, w = torch.eye(2), torch.eye(2)
    >>> margin_softmax(x, w, torch.tensor([0, 1]), margin=AdditiveCosine(0.5), scale=2.0)
    tensor(0.3133)
    """
    size = len(weight) // max(1, sub_centers) if isinstance(weight, Tensor) and weight.ndim else 0
    return part_softmax(
        Everyone(features, features, labels),
        weight,
        Portion(size, size),
        margin=margin,
        angular=angular,
        scale=scale,
        bias=bias,
        comparison=compared_by(comparison, label_smoothing),
        annealing=annealing,
        sub_centers=sub_centers,
        gradient=gradient,
        reduction=reduction,
        ignore_index=ignore_index,
        chunk=chunk,
        matmul_dtype=matmul_dtype,
    )


def part_softmax(
    everyone: Everyone,
    weight: Float[Tensor, "ck d"],
    part: Portion,
    *,
    margin: Margin | None = None,
    angular: AngularLike | None = None,
    scale: Scale = 30.0,
    bias: Float[Tensor, "..."] | None = None,
    comparison: Comparison | None = None,
    annealing: float | Float[Tensor, ""] = 0.0,
    sub_centers: int = 1,
    gradient: Literal["exact", "detached"] = "exact",
    reduction: Literal["mean", "sum", "none"] = "mean",
    ignore_index: int = -100,
    chunk: Chunk = "auto",
    matmul_dtype: torch.dtype | None = None,
) -> Float[Tensor, "..."]:
    """:func:`margin_softmax` where ``weight`` and ``bias`` are of a part of the classes.

    Where other processes hold the other classes, the loss is that of all processes' samples, over all classes, and the
    same on each process; ``reduction="none"`` returns those of this process's samples. Here two of three classes, 0 and
    2, were drawn for a step:

    >>> x, w, drawn = torch.eye(3)[:1], torch.eye(3), torch.tensor([0, 2])
    >>> part_softmax(Everyone(x, x, torch.tensor([0])), w[drawn], Portion(3, 2, ids=drawn), scale=2.0)
    tensor(0.1269)
    """
    check(everyone.whole, weight, bias, scale, sub_centers, gradient, reduction, part)
    labels, ignored = counted_labels(everyone.labels, len(everyone.whole), part.num_classes, ignore_index)
    everyone = everyone._replace(labels=labels)
    scores = Scores(
        NoMargin() if margin is None else margin,
        Cosine() if angular is None else as_angular(angular),
        part.num_classes,
        sub_centers,
        isinstance(scale, str) and scale == "norms",
        matmul_dtype,
        gradient == "detached",
    )
    compare = compared_by(comparison, 0.0)
    few = matmul_dtype is None and are_few(chunk, len(labels), part)
    chunk = chunk_size(chunk, len(labels), part.size, labels.device)
    if chunk is None and not part.is_whole:
        chunk = max(1, part.size)
    with full_precision(labels.device.type):
        loss = None
        if few:
            loss = few_losses(everyone.whole, weight, labels, ignored, scores, compare, scale, bias, annealing)
        if loss is None:
            # Chunks are a loop with a backward of its own: a compiled graph ends before them and goes on behind.
            outside = chunk is not None and torch.compiler.is_compiling()
            losses = torch.compiler.disable(_losses) if outside else _losses
            loss = losses(everyone, weight, ignored, scores, compare, scale, bias, annealing, chunk, part)
        if reduction == "none" and part.processes is not None:
            return part.processes.own(loss if ignored is None else loss.masked_fill(ignored, 0))
        return _reduce(loss, ignored, reduction)


def class_logits(
    features: Float[Tensor, "n d"],
    weight: Float[Tensor, "ck d"],
    *,
    angular: AngularLike | None = None,
    scale: Scale = 30.0,
    bias: Float[Tensor, "..."] | None = None,
    sub_centers: int = 1,
    part: Portion | None = None,
) -> Float[Tensor, "n c"]:
    r"""scale·g(θ_j) + b_j of every class, without a margin: what a trained head predicts with.

    ``part`` says which classes the rows are; by default all.

    >>> class_logits(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 5.0]]), scale="feature_norm")
    tensor([[3., 0.]])
    """
    g = Cosine() if angular is None else as_angular(angular)
    check(features, weight, bias, scale, sub_centers, part=part)
    with full_precision(features.device.type):
        dtype = accumulation_dtype(features, weight)
        weight_norm = isinstance(scale, str) and scale == "norms"
        size = len(weight) // sub_centers
        scores = Scores(NoMargin(), g, size if part is None else part.num_classes, sub_centers, weight_norm)
        bias = None if bias is None else bias.to(dtype).expand(size)
        classes = slice(None) if part is None else slice(part.first, part.first + size)
        return all_scores(scores, weight.to(dtype), bias, features_of(features.to(dtype), scale), None, classes)


def compared_by(comparison: Comparison | None, label_smoothing: float) -> Comparison:
    """The comparison that was given, or the cross-entropy; smoothing belongs to the latter alone.

    Raises:
        ValueError: If another comparison is given together with a smoothing.

    >>> compared_by(None, 0.1)
    CrossEntropy(label_smoothing=0.1)
    """
    if comparison is None:
        return CrossEntropy(label_smoothing)
    if label_smoothing:
        raise ValueError(
            f"label_smoothing={label_smoothing!r} belongs to the cross-entropy and has no meaning for "
            f"{type(comparison).__name__}; leave it at 0, or give CrossEntropy(label_smoothing) itself"
        )
    return comparison


def _losses(
    everyone: Everyone,
    weight: Tensor,
    ignored: Tensor | None,
    scores: Scores,
    comparison: Comparison,
    scale: Scale,
    bias: Tensor | None,
    annealing: float | Tensor,
    chunk: int | None,
    part: Portion,
) -> Tensor:
    labels = everyone.labels
    dtype = accumulation_dtype(everyone.whole, weight)
    x = features_of(everyone.whole.to(dtype), scale, labels, ignored)
    x = x._replace(noise=drawn_for(scores.margin, x.norms))
    mine = x
    if part.processes is not None:
        shared = entered(scale, part) if isinstance(scale, Tensor) else scale
        mine = features_of(everyone.share.to(dtype), shared, labels, ignored)._replace(noise=x.noise)
    places, here = places_of(part, labels)
    rows, weight = rows_of(weight, places, scores.sub_centers, chunk)
    met = _everywhere(met_by(scores, mine, rows.to(dtype)), here, part)
    g = angular_of(scores, labels)
    target = target_of(x, met, g)
    logit = target_logit(scores, x, target, g, annealing)
    if bias is not None:
        logit, bias = _biased(logit, bias.to(dtype), places, here, part)
    if chunk is None:
        z = all_scores(scores, weight.to(dtype), bias, x, target.cos)
        z = z.scatter(1, labels.unsqueeze(-1), -torch.inf)
        summary = comparison.of_all(z)
    else:
        summary = summarize_others(scores, comparison, mine, weight, bias, target.cos, chunk, part)
    loss = comparison.loss(logit, summary, scores.num_classes if part.total is None else part.total)
    penalty = scores.margin.penalty(Context(g, x.norms, labels, ignored, target.cos, noise=x.noise))
    return loss if penalty is None else loss + penalty


def _everywhere(met: Met, here: Tensor | None, part: Portion) -> Met:
    """What the rows of the targets say, from whichever process holds them."""
    if part.processes is None or here is None:
        return met
    known = torch.stack([term for term in (met.cos, met.product, met.length) if term is not None])
    cos, *others = added(known.masked_fill(~here, 0), part)
    length = None if met.length is None else others.pop()
    return Met(None if met.product is None else others.pop(), cos, length)


def _biased(logit: Tensor, bias: Tensor, places: Tensor, here: Tensor | None, part: Portion) -> tuple[Tensor, Tensor]:
    """The target's logit with its bias, and one bias for every class at hand."""
    if bias.ndim == 0 or (part.is_whole and len(bias) == 1):
        return logit + bias, entered(bias, part).expand(part.size)
    if here is None:
        return logit + bias[places], bias
    own = bias[places.clamp(0, part.size - 1)] if part.size else logit.new_zeros(len(logit))
    return logit + added(own.masked_fill(~here, 0), part), bias


def _reduce(loss: Tensor, ignored: Tensor | None, reduction: str) -> Tensor:
    if ignored is None:
        return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()
    loss = loss.masked_fill(ignored, 0)
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / (~ignored).sum().clamp_min(1)
