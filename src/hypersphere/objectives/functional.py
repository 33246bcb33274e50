"""The softmax family as one pure function."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from ..angular import AngularLike, Cosine, as_angular
from ..geometry import norm, normalize
from .checks import Scale, check, checked_labels
from .large import chunk_size, large_log_sum_exp, rows_of
from .margins import Margin, NoMargin
from .margins.base import Score
from .scores import MIN_NORM, Features, Scores, all_scores, angular_of, features_of

Chunk = int | Literal["auto"] | None


def margin_softmax(
    features: Float[Tensor, "n d"],
    weight: Float[Tensor, "ck d"],
    labels: Int[Tensor, "n"],
    *,
    margin: Margin | None = None,
    angular: AngularLike | None = None,
    scale: Scale = 30.0,
    bias: Float[Tensor, "c"] | None = None,
    annealing: float | Float[Tensor, ""] = 0.0,
    sub_centers: int = 1,
    gradient: Literal["exact", "detached"] = "exact",
    reduction: Literal["mean", "sum", "none"] = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    chunk: Chunk = "auto",
    matmul_dtype: torch.dtype | None = None,
) -> Float[Tensor, "..."]:
    r"""Cross-entropy over hyperspherical logits, with a margin on the target (part I, eq. 2.4, 2.20, 3.11, L_a1, L_a2).

    .. math:: L = \operatorname{mean}_i −\log \frac{e^{t_i}}{e^{t_i} + Σ_{j≠y_i} e^{z_{ij}}},\quad
        t_i = \text{scale}·ψ(θ_{y_i}) + b_{y_i},\quad z_{ij} = \text{scale}·φ(g(θ_j)) + b_j

    Args:
        features: x, any floating dtype; half precision is computed in float32, also under autocast, and gives a float32 loss.
        weight: the class weights as rows; with ``sub_centers=K`` row c·K + k is the k-th centre of class c.
        labels: classes in [0, C), or ``ignore_index``.
        margin: ψ and φ, an object of :mod:`hypersphere.objectives.margins`; none by default.
        angular: g, an object of :mod:`hypersphere.angular`; the cosine by default.
        scale: a number or scalar tensor s; ``"feature_norm"`` is ‖x‖; ``"norms"`` is ‖w‖‖x‖.
        bias: b, one per class.
        annealing: λ ≥ 0; the target's logit is (λ·plain + margin)/(1 + λ).
        gradient: ``"exact"`` is the derivative of the loss. ``"detached"`` holds the margin's effect ψ(θ) − g(θ) constant: the
            loss has the same value, and its gradient is the one of the target's plain logit under the margin's probabilities.
        reduction: over the samples that are not ignored. The mean of none is 0.
        chunk: how many classes at a time; the N×C logits and the normalized weights are then never built (see
            :mod:`hypersphere.objectives.large`). ``None`` is the dense path, which can be differentiated twice and compiled.
        matmul_dtype: compute the large matrix products in this dtype (``torch.bfloat16``); full precision by default.

    >>> from hypersphere.objectives.margins import AdditiveCosine
    >>> x, w = torch.eye(2), torch.eye(2)
    >>> margin_softmax(x, w, torch.tensor([0, 1]), margin=AdditiveCosine(0.5), scale=2.0)
    tensor(0.3133)
    """
    check(features, weight, bias, scale, sub_centers, gradient, reduction, label_smoothing)
    num_classes = len(weight) // sub_centers
    labels, ignored = checked_labels(labels, len(features), num_classes, ignore_index)
    margin = NoMargin() if margin is None else margin
    g = Cosine() if angular is None else as_angular(angular)
    scores = Scores(margin, g, num_classes, sub_centers, isinstance(scale, str) and scale == "norms", matmul_dtype)
    chunk = chunk_size(chunk, len(features), num_classes, features.device)
    with torch.autocast(features.device.type, enabled=False):
        # Chunks are a loop with a backward of its own: a compiled graph ends before them and goes on behind.
        losses = torch.compiler.disable(_losses) if chunk is not None and torch.compiler.is_compiling() else _losses
        loss = losses(
            _work(features, weight), weight, labels, scores, scale, bias, annealing, gradient, label_smoothing, chunk
        )
        return _reduce(loss, ignored, reduction)


def class_logits(
    features: Float[Tensor, "n d"],
    weight: Float[Tensor, "ck d"],
    *,
    angular: AngularLike | None = None,
    scale: Scale = 30.0,
    bias: Float[Tensor, "c"] | None = None,
    sub_centers: int = 1,
) -> Float[Tensor, "n c"]:
    r"""scale·g(θ_j) + b_j of every class, without a margin: what a trained head predicts with.

    >>> class_logits(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 5.0]]), scale="feature_norm")
    tensor([[3., 0.]])
    """
    g = Cosine() if angular is None else as_angular(angular)
    check(features, weight, bias, scale, sub_centers)
    with torch.autocast(features.device.type, enabled=False):
        work = _work(features, weight)
        scores = Scores(
            NoMargin(), g, len(weight) // sub_centers, sub_centers, isinstance(scale, str) and scale == "norms"
        )
        bias = None if bias is None else bias.to(work.dtype)
        return all_scores(scores, weight.to(work.dtype), bias, features_of(work, scale), None)


def _losses(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    scores: Scores,
    scale: Scale,
    bias: Tensor | None,
    annealing: float | Tensor,
    gradient: str,
    smoothing: float,
    chunk: int | None,
) -> Tensor:
    x = features_of(features, scale)
    rows, weight = rows_of(weight, labels, scores.sub_centers, chunk)
    g = angular_of(scores, labels)
    plain, cos, length = _target(rows.to(features.dtype), x, scores, g)
    effect = (scores.margin.target(cos, x.norms, g) - g(cos)) / (1 + annealing)
    logit = plain + x.scale * length * (effect.detach() if gradient == "detached" else effect)
    if bias is not None:
        bias = bias.to(features.dtype)
        logit = logit + bias[labels]
    if chunk is None:
        z = all_scores(scores, weight.to(features.dtype), bias, x, cos)
        column = labels.unsqueeze(-1)
        others, total = z.scatter(1, column, -torch.inf).logsumexp(-1), z.scatter(1, column, 0).sum(-1)
    else:
        others, total = large_log_sum_exp(scores, x, weight, bias, labels, cos, chunk, smoothing > 0)
    loss = -F.logsigmoid(logit - others)
    return loss if smoothing == 0 else loss + smoothing * (logit - (logit + total) / scores.num_classes)


def _target(rows: Tensor, x: Features, scores: Scores, g: Score) -> tuple[Tensor, Tensor, Tensor]:
    """The plain logit, cos θ and the weight's share of the scale, for the target classes; rows are (n, K, d)."""
    direction = normalize(rows, min_norm=0.0 if scores.weight_norm else MIN_NORM)
    cos = (x.directions.unsqueeze(1) * direction).sum(-1)
    nearest = cos.argmax(-1, keepdim=True)
    cos = cos.gather(-1, nearest).squeeze(-1).clamp(-1, 1)
    length = norm(rows).squeeze(-1) if scores.weight_norm else torch.ones_like(cos)
    if not isinstance(scores.angular, Cosine):
        return x.scale * length * g(cos), cos, length
    # The inner product has the gradient of the plain softmax also at x = 0 and w = 0, where an angle has none.
    products = (x.scaled.unsqueeze(1) * (rows if scores.weight_norm else direction)).sum(-1)
    return products.gather(-1, nearest).squeeze(-1), cos, length


def _reduce(loss: Tensor, ignored: Tensor, reduction: str) -> Tensor:
    loss = loss.masked_fill(ignored, 0)
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / (~ignored).sum().clamp_min(1)


def _work(features: Tensor, weight: Tensor) -> Tensor:
    """The features in the dtype of the computation: float32 or better."""
    return features.to(torch.promote_types(torch.promote_types(features.dtype, weight.dtype), torch.float32))
