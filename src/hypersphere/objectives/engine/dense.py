"""Dense losses: all logits at once, with plain autograd. This is the reference for the other loss methods."""

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry import accumulation_dtype, norm, normalize
from ..margins import Margin
from ..margins.margin import draw_noise
from .problem import LossProblem, select_angular
from .scores import (
    MIN_NORM,
    Batch,
    BatchFeatures,
    Target,
    add_penalty,
    compute_scores,
    compute_target,
    compute_target_logit,
    compute_target_products,
    multiply_rows,
    prepare_features,
    set_noise,
)


def compute_dense(problem: LossProblem, chunk: int = 0) -> Float[Tensor, "n"]:
    """Return the loss of each sample. ``chunk`` is not used; it is part of the interface of loss methods."""
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
    return add_penalty(scores, loss, x, g, target.cos)


def _compute_soft(problem: LossProblem, x: BatchFeatures, weight: Tensor, bias: Tensor | None) -> Float[Tensor, "n"]:
    """Return Σ_c p_ic·L(x_i, c): the loss with each class as the target, weighted by its probability.

    Every class is the target in turn. The margin is applied to all n×C cosines, each as the target of its column's class,
    and the comparison summarizes all classes except this target.
    """
    scores, soft = problem.scores, problem.batch.soft
    assert soft is not None
    z = compute_scores(scores, weight, bias, x, None)
    logit = z
    if type(scores.margin).target is not Margin.target:
        g = select_angular(scores, slice(None))
        cos = multiply_rows(scores, x.directions, normalize(weight, min_norm=0.0 if scores.weight_norm else MIN_NORM))
        classes = torch.arange(scores.num_classes, device=cos.device).unsqueeze(0)
        noise = None if x.noise is None else {strength: values.unsqueeze(-1) for strength, values in x.noise.items()}
        columns = Batch(x.norms.unsqueeze(-1), x.scale.unsqueeze(-1), classes, noise=noise)
        target = Target(z, cos.clamp(-1, 1), norm(weight) if scores.weight_norm else None)
        logit = compute_target_logit(scores, columns, target, g, problem.annealing)
    summary = tuple(part.flatten() for part in problem.comparison.of_all_but_each(z))
    losses = problem.comparison.loss(logit.flatten(), summary, scores.num_classes).view_as(z)
    loss = (soft.to(losses.dtype) * losses).sum(1)
    return add_penalty(scores, loss, x, select_angular(scores, problem.labels))
