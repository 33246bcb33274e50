"""The losses of a head of few classes, from all products at once."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..geometry import accumulation_dtype
from .comparisons import Comparison
from .head_options import Scale
from .margins.margin import AngularScore, Context, drawn_for
from .products import Products, products
from .scores import (
    Batch,
    Met,
    Scores,
    Target,
    angular_of,
    hardest_of,
    is_plain,
    looks_at_target,
    scale_of,
    scores_of_cosines,
    target_logit,
    target_of,
)


def few_losses(
    features: Float[Tensor, "n d"],
    weight: Float[Tensor, "ck d"],
    labels: Int[Tensor, "n"],
    ignored: Bool[Tensor, "n"] | None,
    scores: Scores,
    comparison: Comparison,
    scale: Scale,
    bias: Float[Tensor, "..."] | None,
    annealing: float | Float[Tensor, ""],
) -> Float[Tensor, "n"] | None:
    """The loss of each sample; None where a length is so unusual that it needs the care of the other paths.

    >>> from hypersphere.angular import Cosine
    >>> from hypersphere.objectives import comparisons, margins
    >>> scores, compare = Scores(margins.NoMargin(), Cosine(), 2), comparisons.CrossEntropy()
    >>> few_losses(torch.eye(2), torch.eye(2), torch.tensor([0, 1]), None, scores, compare, 1.0, None, 0.0)
    tensor([0.3133, 0.3133])
    """
    dtype, plain, by_norm = accumulation_dtype(features, weight), is_plain(scores), isinstance(scale, str)
    # Plain products carry a scale that is a number; one that may learn is apart.
    x, apart = features.to(dtype), plain and isinstance(scale, Tensor)
    found = products(
        x,
        weight.to(dtype),
        labels,
        sub_centers=scores.sub_centers,
        by_x=not (plain and by_norm),
        by_weight=not (plain and scores.weight_norm),
        scale=float(scale) if plain and isinstance(scale, (int, float)) else 1.0,
        masked=plain and not apart,
    )
    if found is None:
        return None
    each = found.norms if isinstance(scale, str) else scale_of(x, scale) if isinstance(scale, Tensor) else float(scale)
    batch = Batch(found.norms, each, labels, ignored, drawn_for(scores.margin, found.norms))
    g = angular_of(scores, labels)
    # Where nobody looks at the target's angle, its product with the scale is all there is to know.
    if plain and not looks_at_target(scores.margin):
        cos, logit = None, found.own * each if apart else found.own
    else:
        target = _target(found, batch, scores, g, plain, apart)
        cos, logit = target.cos, target_logit(scores, batch, target, g, annealing)
    if bias is not None:
        bias = bias.to(dtype)
        logit = logit + (bias[labels] if bias.numel() > 1 else bias)
    if plain:
        z = found.others * each.unsqueeze(-1) if apart and isinstance(each, Tensor) else found.others
        z = z if bias is None else z + bias
    else:
        hardest, lengths = hardest_of(scores, found.others, labels), found.lengths if scores.weight_norm else None
        each_bias = None if bias is None else bias.expand(scores.num_classes)
        z = scores_of_cosines(scores, slice(None), found.others, lengths, each_bias, batch, cos, hardest)
    if apart or not plain:
        z = z.scatter(1, labels.unsqueeze(-1), -torch.inf)
    loss = comparison.loss(logit, comparison.of_all(z), scores.num_classes)
    penalty = scores.margin.penalty(Context(g, batch.norms, labels, ignored, cos, noise=batch.noise))
    return loss if penalty is None else loss + penalty


def _target(found: Products, batch: Batch, scores: Scores, g: AngularScore, plain: bool, apart: bool) -> Target:
    """The target classes' side; plain products carry the scale, unless it is ``apart``."""
    assert batch.labels is not None
    length = found.lengths[batch.labels] if scores.weight_norm else None
    if not plain or apart:
        return target_of(batch, Met(None, found.own.clamp(-1, 1), length), g)
    scale = batch.scale if length is None else batch.scale * length
    return Target(found.own, (found.own / scale).clamp(-1, 1), length)
