"""Dense losses: all logits at once, with plain autograd. This is the definition that the other methods must agree with."""

import torch
from jaxtyping import Float
from torch import Tensor

from ...angular import Cosine
from ...geometry import accumulation_dtype, norm, normalize
from ..margins import Margin
from ..margins.margin import Context, draw_noise
from .problem import LossProblem, select_angular
from .scores import (
    MIN_NORM,
    BatchFeatures,
    compute_scores,
    compute_target,
    compute_target_logit,
    compute_target_products,
    multiply_rows,
    prepare_features,
    set_noise,
)


def compute_dense(problem: LossProblem, chunk: int = 0) -> Float[Tensor, "n"]:
    """Return the loss of each sample; a :class:`~hypersphere.objectives.engine.LossMethod`."""
    scores, labels = problem.scores, problem.labels
    dtype = accumulation_dtype(problem.batch.features, problem.weight)
    x = prepare_features(problem.batch.features.to(dtype), problem.scale, labels, problem.ignored)
    x = set_noise(x, draw_noise(scores.margin, x.norms))
    bias = None if problem.bias is None else problem.bias.to(dtype).expand(problem.subset.size)
    if problem.batch.soft is not None:
        return _compute_soft(problem, x, problem.weight.to(dtype), bias)
    rows = problem.weight.unflatten(0, (-1, scores.sub_centers))[labels]
    g = select_angular(scores, labels)
    target = compute_target(x, compute_target_products(scores, x, rows.to(dtype)), g)
    logit = compute_target_logit(scores, x, target, g, problem.annealing)
    logit = logit if bias is None else logit + bias[labels]
    z = compute_scores(scores, problem.weight.to(dtype), bias, x, target.cos)
    z = z.scatter(1, labels.unsqueeze(-1), -torch.inf)
    loss = problem.comparison.loss(logit, problem.comparison.of_all(z), scores.num_classes)
    penalty = scores.margin.penalty(Context(g, x.norms, labels, problem.ignored, target.cos, noise=x.noise))
    return loss if penalty is None else loss + penalty


def _compute_soft(problem: LossProblem, x: BatchFeatures, weight: Tensor, bias: Tensor | None) -> Float[Tensor, "n"]:
    """Return Σ_c p_ic·L(x_i, c): the loss with each class as the target, weighted by its probability.

    Every class is the target in turn: the margin's target hook receives all n×C cosines, with one label per column, and
    the comparison summarizes all classes except that one.
    """
    scores, soft = problem.scores, problem.batch.soft
    assert soft is not None
    z = compute_scores(scores, weight, bias, x, None)
    logit = z
    if type(scores.margin).target is not Margin.target:
        g = select_angular(scores, slice(None))
        cos = multiply_rows(scores, x.directions, normalize(weight, min_norm=0.0 if scores.weight_norm else MIN_NORM))
        cos = cos.clamp(-1, 1)
        classes = torch.arange(scores.num_classes, device=cos.device).unsqueeze(0)
        noise = None if x.noise is None else {strength: values.unsqueeze(-1) for strength, values in x.noise.items()}
        context = Context(g, x.norms.unsqueeze(-1), classes, noise=noise)
        effect = scores.margin.target(cos, context) - (cos if isinstance(g, Cosine) else g(cos))
        effect = effect / (1 + problem.annealing)
        effect = effect.detach() if scores.detached else effect
        change = x.scale.unsqueeze(-1) * (effect * norm(weight) if scores.weight_norm else effect)
        logit = z + change.clamp_min(-torch.finfo(change.dtype).max / 1024)
    summary = tuple(part.flatten() for part in problem.comparison.of_all_but_each(z))
    losses = problem.comparison.loss(logit.flatten(), summary, scores.num_classes).view_as(z)
    loss = (soft.to(losses.dtype) * losses).sum(1)
    penalty = scores.margin.penalty(
        Context(select_angular(scores, problem.labels), x.norms, problem.labels, noise=x.noise)
    )
    return loss if penalty is None else loss + penalty
