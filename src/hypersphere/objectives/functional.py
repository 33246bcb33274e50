"""The softmax family as pure functions."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..angular import AngularLike, Cosine, as_angular
from ..geometry import accumulation_dtype, disable_autocast
from .comparisons import Comparison
from .comparisons.cross_entropy import choose_comparison
from .engine import Chunk, ClassSubset, GatheredBatch, Scale, ScoreFunction, Targets, compute_loss
from .engine.problem import check_arguments
from .engine.scores import compute_scores, prepare_features
from .margins import Margin, NoMargin


def margin_softmax(
    features: Float[Tensor, "n d"],
    weight: Float[Tensor, "ck d"],
    labels: Int[Tensor, "n"] | Targets,
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
    r"""Compute a loss over hyperspherical logits, with a margin on the target (part I, eq. 2.4, 2.20, 3.11, L_a1, L_a2).

    .. math:: L = \operatorname{mean}_i −\log \frac{e^{t_i}}{e^{t_i} + Σ_{j≠y_i} e^{z_{ij}}},\quad
        t_i = \text{scale}·ψ(θ_{y_i}) + b_{y_i},\quad z_{ij} = \text{scale}·φ(g(θ_j)) + b_j

    Args:
        features: x, of any floating dtype. Half precision is computed in float32, also under autocast, and the loss is in
            float32.
        weight: The class weights as rows; with ``sub_centers=K`` row c·K + k is the k-th center of class c.
        labels: Classes in [0, C), or ``ignore_index``; or :class:`~hypersphere.objectives.Targets` with soft targets or
            sample weights.
        margin: ψ and φ, an object of :mod:`hypersphere.objectives.margins`; none by default.
        angular: g, an object of :mod:`hypersphere.angular`; the cosine by default.
        scale: A number or scalar tensor s; ``"feature_norm"`` is ‖x‖; ``"norms"`` is ‖w‖‖x‖.
        bias: b, one per class, or a scalar that all classes share.
        comparison: How t is compared with the z_j, an object of :mod:`hypersphere.objectives.comparisons`; the
            cross-entropy above by default.
        annealing: λ ≥ 0; the target's logit is (λ·(logit without margin) + logit with margin)/(1 + λ).
        sub_centers: K, the number of weight rows per class, of which the nearest one is used.
        gradient: ``"exact"`` is the derivative of the loss. ``"detached"`` treats the margin's effects ψ(θ) − g(θ) and
            φ(θ) − g(θ) as constants in the backward pass. The loss has the same value.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` over the samples that are not ignored. If all are ignored, the mean is 0.
        ignore_index: The label of samples that do not count.
        label_smoothing: ε of the cross-entropy; other comparisons do not support it.
        chunk: Number of classes to compute at a time. ``"auto"`` chooses it by the number of logits, and ``None`` computes all at
            once with plain autograd. The table in :mod:`hypersphere.objectives.engine` lists the methods.
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
    targets = labels if isinstance(labels, Targets) else None
    batch = GatheredBatch(
        features,
        features,
        labels if targets is None else targets.labels,  # type: ignore[arg-type]
        None if targets is None else targets.soft,
        None if targets is None else targets.weights,
    )
    return compute_loss(
        batch,
        weight,
        ClassSubset(size, size),
        margin=margin,
        angular=angular,
        scale=scale,
        bias=bias,
        comparison=choose_comparison(comparison, label_smoothing),
        annealing=annealing,
        sub_centers=sub_centers,
        gradient=gradient,
        reduction=reduction,
        ignore_index=ignore_index,
        chunk=chunk,
        matmul_dtype=matmul_dtype,
    )


def class_logits(
    features: Float[Tensor, "n d"],
    weight: Float[Tensor, "ck d"],
    *,
    angular: AngularLike | None = None,
    scale: Scale = 30.0,
    bias: Float[Tensor, "..."] | None = None,
    sub_centers: int = 1,
    subset: ClassSubset | None = None,
) -> Float[Tensor, "n c"]:
    r"""Compute scale·g(θ_j) + b_j of every class, without a margin: the logits that a trained head predicts with.

    The arguments are those of :func:`margin_softmax`. ``subset`` has the classes of the rows; by default these are all classes.

    >>> class_logits(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 5.0]]), scale="feature_norm")
    tensor([[3., 0.]])
    """
    g = Cosine() if angular is None else as_angular(angular)
    check_arguments(features, weight, bias, scale, sub_centers, subset=subset)
    with disable_autocast(features.device.type):
        dtype = accumulation_dtype(features, weight)
        weight_norm = isinstance(scale, str) and scale == "norms"
        size = len(weight) // sub_centers
        scores = ScoreFunction(NoMargin(), g, size if subset is None else subset.num_classes, sub_centers, weight_norm)
        bias = None if bias is None else bias.to(dtype).expand(size)
        classes = slice(None) if subset is None else slice(subset.first, subset.first + size)
        return compute_scores(
            scores, weight.to(dtype), bias, prepare_features(features.to(dtype), scale), None, classes
        )
