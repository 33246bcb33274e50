"""Logits with margins from features and class weights, for any subset of the classes.

All methods to compute a loss use these definitions.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from ...angular import Cosine
from ...geometry import matmul, norm, normalize
from ..margins import Margin
from ..margins.margin import AngularScore, Context, Sloped, Strength, evaluate_with_slope
from .problem import ScoreFunction, is_plain, select_angular

MIN_NORM = 1e-4
"""Features and class weights shorter than this get the gradient of a vector of this length, because the gradient of x/‖x‖ grows as
1/‖x‖. Their logits are exact. With the scale ‖x‖ the gradient of the features has no such bound, and with ‖w‖‖x‖ that of the
weights has none either: these logits contain no quotient that grows."""
MAX_NORM = 1e15
"""Squares of longer vectors may overflow in float32."""


class Batch(NamedTuple):
    """The part of :class:`BatchFeatures` that hooks use; ``scale`` may be one number for all samples."""

    norms: Float[Tensor, "n"]
    scale: Float[Tensor, "n"] | float
    labels: Int[Tensor, "n"] | None = None
    ignored: Bool[Tensor, "n"] | None = None
    noise: Mapping[Strength, Tensor] | None = None


class BatchFeatures(NamedTuple):
    """Directions, lengths and labels of a batch.

    Attributes:
        directions: x̂.
        norms: ‖x‖.
        scale: The scale of each sample's logits.
        scaled: scale·x̂, which is x itself if the scale is ‖x‖.
        labels: The class of each sample among all classes.
        ignored: Whether each sample is ignored, None if none is. The label of an ignored sample is 0 and has no meaning.
        noise: One random number per sample for each strength that draws them in this forward pass.
    """

    directions: Float[Tensor, "n d"]
    norms: Float[Tensor, "n"]
    scale: Float[Tensor, "n"]
    scaled: Float[Tensor, "n d"]
    labels: Int[Tensor, "n"] | None = None
    ignored: Bool[Tensor, "n"] | None = None
    noise: Mapping[Strength, Tensor] | None = None


def set_noise(x: BatchFeatures, noise: Mapping[Strength, Tensor] | None) -> BatchFeatures:
    """Return the batch with these random numbers. ``x._replace`` does not compile with PyTorch 2.6."""
    return BatchFeatures(x.directions, x.norms, x.scale, x.scaled, x.labels, x.ignored, noise)


class TargetProducts(NamedTuple):
    """Inner product, cos θ and ‖w‖ of each sample and its target class, each (n,); None if not needed."""

    product: Float[Tensor, "n"] | None
    cos: Float[Tensor, "n"]
    length: Float[Tensor, "n"] | None


class Target(NamedTuple):
    """The target's logit without margin and bias, cos θ, and ‖w‖ if the scale includes it, each (n,)."""

    plain: Float[Tensor, "n"]
    cos: Float[Tensor, "n"]
    length: Float[Tensor, "n"] | None


def prepare_features(
    x: Float[Tensor, "n d"],
    scale: Float[Tensor, "..."] | float | str,
    labels: Int[Tensor, "n"] | None = None,
    ignored: Bool[Tensor, "n"] | None = None,
) -> BatchFeatures:
    """Compute directions and scales; ``scale`` is a number, a 0-d or (n,) tensor, ``"feature_norm"`` or ``"norms"``."""
    directions = normalize(x, min_norm=0.0 if isinstance(scale, str) else MIN_NORM)
    norms = (x * directions).sum(-1)
    if isinstance(scale, str):
        return BatchFeatures(directions, norms, norms, x, labels, ignored)
    per_sample = expand_scale(norms, scale)
    return BatchFeatures(directions, norms, per_sample, per_sample.unsqueeze(-1) * directions, labels, ignored)


def expand_scale(norms: Float[Tensor, "n"], scale: Float[Tensor, "..."] | float) -> Float[Tensor, "n"]:
    """Return a constant scale for each sample, in the dtype and on the device of ``norms``."""
    return torch.as_tensor(scale, dtype=norms.dtype, device=norms.device).expand_as(norms)


def compute_target_products(scores: ScoreFunction, x: BatchFeatures, rows: Float[Tensor, "n k d"]) -> TargetProducts:
    """Compute the products of each sample with the rows of its target class, (n, K, d)."""
    direction = normalize(rows, min_norm=0.0 if scores.weight_norm else MIN_NORM)
    cos = (x.directions.unsqueeze(1) * direction).sum(-1)
    nearest = cos.argmax(-1, keepdim=True)
    cos = cos.gather(-1, nearest).squeeze(-1).clamp(-1, 1)
    length = norm(rows).squeeze(-1) if scores.weight_norm else None
    if not isinstance(scores.angular, Cosine):
        return TargetProducts(None, cos, length)
    # The inner product has the gradient of the plain softmax even at x = 0 and w = 0, where an angle has no gradient.
    products = (x.scaled.unsqueeze(1) * (rows if scores.weight_norm else direction)).sum(-1)
    return TargetProducts(products.gather(-1, nearest).squeeze(-1), cos, length)


def compute_target(x: Batch | BatchFeatures, products: TargetProducts, g: AngularScore) -> Target:
    """Return the target's logit without margin, and what the margin needs. ``g`` belongs to the target classes."""
    if products.product is not None:
        return Target(products.product, products.cos, products.length)
    plain = x.scale * g(products.cos)
    return Target(plain if products.length is None else plain * products.length, products.cos, products.length)


def compute_target_logit(
    scores: ScoreFunction, x: Batch | BatchFeatures, target: Target, g: AngularScore, annealing: float | Tensor = 0.0
) -> Float[Tensor, "*n"]:
    """Return t without its bias: the logit without margin plus scale·(ψ − g)/(1 + λ). Calls the target hook once.

    With soft targets every class is the target once: the tensors then have one row per sample and one column per class.
    """
    if type(scores.margin).target is Margin.target:
        return target.plain
    plain = target.cos if isinstance(g, Cosine) else g(target.cos)
    effect = scores.margin.target(target.cos, Context(g, x.norms, x.labels, x.ignored, noise=x.noise)) - plain
    if isinstance(annealing, Tensor) or annealing:
        effect = effect / (1 + annealing)
    effect = effect.detach() if scores.detached else effect
    change = x.scale * (effect if target.length is None else target.length * effect)
    # A margin makes a logit up to 2m − 1 times as large. The limit keeps it finite wherever the logit without margin is finite.
    return target.plain + change.clamp_min(-torch.finfo(change.dtype).max / 1024)


def add_penalty(
    scores: ScoreFunction,
    loss: Float[Tensor, "n"],
    x: Batch | BatchFeatures,
    g: AngularScore,
    target: Float[Tensor, "n"] | None = None,
) -> Float[Tensor, "n"]:
    """Add the margin's penalty, if it has one, to the loss of each sample; ``target`` is cos θ of the target class."""
    penalty = scores.margin.penalty(Context(g, x.norms, x.labels, x.ignored, target, noise=x.noise))
    return loss if penalty is None else loss + penalty


def compute_scores(
    scores: ScoreFunction,
    weight: Float[Tensor, "ck d"],
    bias: Float[Tensor, "c"] | None,
    x: BatchFeatures,
    target: Float[Tensor, "n"] | None,
    classes: slice = slice(None),
) -> Float[Tensor, "n c"]:
    """Return the logits of ``classes``; ``weight`` and ``bias`` contain the rows and biases of these classes.

    The entries of the target classes are meaningless if the margin overrides ``others``.
    """
    direction = normalize(weight, min_norm=0.0 if scores.weight_norm else MIN_NORM)
    if is_plain(scores):
        z = multiply_rows(scores, x.scaled, weight if scores.weight_norm else direction)
        return z if bias is None else z + bias
    lengths = norm(weight) if scores.weight_norm else None
    cos = multiply_rows(scores, x.directions, direction)
    return score_cosines(scores, classes, cos, lengths, bias, x, target, find_hardest(scores, cos, x.labels))


def find_hardest(
    scores: ScoreFunction, cos: Float[Tensor, "n c"], labels: Int[Tensor, "n"] | None
) -> Float[Tensor, "n"] | None:
    """Return the k-th largest cosine among the other classes; None if the margin does not use it."""
    if not scores.margin.hardest or labels is None:
        return None
    others = cos.detach().scatter(1, labels.unsqueeze(-1), -torch.inf)
    return others.topk(min(scores.margin.hardest, scores.num_classes), -1).values[:, -1]


def score_cosines(
    scores: ScoreFunction,
    classes: slice | Int[Tensor, "c"],
    cos: Float[Tensor, "n c"],
    lengths: Float[Tensor, "c"] | None,
    bias: Float[Tensor, "c"] | None,
    x: Batch | BatchFeatures,
    target: Float[Tensor, "n"] | None,
    hardest: Float[Tensor, "n"] | None = None,
) -> Float[Tensor, "n c"]:
    """Return the logits of ``classes`` from their cosines, lengths and biases, by the margin's hook on other classes."""
    context, cos = _build_context(scores, classes, x, target, hardest), _clamp_cosines(scores, cos)
    z = scores.margin.others(cos, context)
    if scores.detached:
        plain = context.g(cos)
        z = plain + (z - plain).detach()
    z = z * (x.scale.unsqueeze(-1) if isinstance(x.scale, Tensor) else x.scale)
    z = z if lengths is None else z * lengths
    return z if bias is None else z + bias


@torch.no_grad()
def score_cosines_with_slope(
    scores: ScoreFunction,
    classes: slice | Int[Tensor, "c"],
    cos: Float[Tensor, "n c"],
    x: Batch | BatchFeatures,
    target: Float[Tensor, "n"] | None,
    hardest: Float[Tensor, "n"] | None = None,
) -> Sloped | None:
    """Return φ of ``classes`` without scale, and ∂φ/∂cos θ; None if the margin or g has no slope in closed form."""
    context, cos = _build_context(scores, classes, x, target, hardest), _clamp_cosines(scores, cos)
    phi = scores.margin.others_with_slope(cos, context)
    if phi is None or not scores.detached:
        return phi
    plain = evaluate_with_slope(context.g, cos)
    return None if plain is None else (phi[0], plain[1])


def _build_context(
    scores: ScoreFunction,
    classes: slice | Tensor,
    x: Batch | BatchFeatures,
    target: Tensor | None,
    hardest: Tensor | None,
) -> Context:
    """Return the context of the hook on other classes, as columns (n, 1)."""
    norms, labels, ignored, target, hardest = (
        None if t is None else t.unsqueeze(-1) for t in (x.norms, x.labels, x.ignored, target, hardest)
    )
    noise = None if x.noise is None else {strength: z.unsqueeze(-1) for strength, z in x.noise.items()}
    return Context(select_angular(scores, classes), norms, labels, ignored, target, hardest, noise)


def _clamp_cosines(scores: ScoreFunction, cos: Tensor) -> Tensor:
    # Only functions of cosines need the limits. The k-th largest cosine, which a margin compares with, has none.
    return cos if scores.margin.hardest or is_plain(scores) else cos.clamp(-1, 1)


def multiply_rows(scores: ScoreFunction, x: Float[Tensor, "n d"], w: Float[Tensor, "ck d"]) -> Float[Tensor, "n c"]:
    """Return the products of features and rows, the largest one per class. They are computed in ``matmul_dtype``."""
    dtype = scores.matmul_dtype or x.dtype
    products = matmul(x.to(dtype), w.to(dtype).T).to(x.dtype)
    return products if scores.sub_centers == 1 else products.unflatten(-1, (-1, scores.sub_centers)).max(-1).values


def find_nearest_centers(
    products: Float[Tensor, "n ck"], sub_centers: int
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"] | None]:
    """Return the largest product per class and the index of its sub-center, the first one of a tie; None for K = 1.

    The index has the dtype of the products: on a CPU, comparisons that write numbers are many times faster than masks.

    >>> find_nearest_centers(torch.tensor([[1.0, 5.0, 7.0, 7.0]]), 2)
    (tensor([[5., 7.]]), tensor([[1., 0.]]))
    """
    if sub_centers == 1:
        return products, None
    centers = products.T.unflatten(0, (-1, sub_centers))
    best, nearest = torch.maximum(centers[:, 0], centers[:, 1]), torch.empty_like(centers[:, 0])
    torch.gt(centers[:, 1], centers[:, 0], out=nearest)
    for k in range(2, sub_centers):
        nearer = torch.gt(centers[:, k], best, out=torch.empty_like(best))
        torch.maximum(nearest, nearer.mul_(k), out=nearest)
        torch.maximum(best, centers[:, k], out=best)
    return best.T, nearest.T


def scatter_to_centers(
    values: Float[Tensor, "n c"], nearest: Shaped[Tensor, "n c"], sub_centers: int
) -> Float[Tensor, "n ck"]:
    """Return each class's value at its nearest sub-center, and 0 at its other sub-centers.

    >>> scatter_to_centers(torch.tensor([[5.0, 7.0]]), torch.tensor([[1, 0]]), 2)
    tensor([[0., 5., 7., 0.]])
    """
    result = values.new_empty(values.shape[1], sub_centers, values.shape[0])
    center = torch.arange(sub_centers, dtype=values.dtype, device=values.device).view(-1, 1)
    torch.eq(nearest.T.to(values.dtype).unsqueeze(1), center, out=result).mul_(values.T.unsqueeze(1))
    return result.flatten(0, 1).T


def sum_by_center(values: Float[Tensor, "n ck"], z: Float[Tensor, "n c"], sub_centers: int) -> Float[Tensor, "ck"]:
    """Return, for each sub-center, the sum over the samples of its value times the product z of its class.

    >>> sum_by_center(torch.tensor([[0.0, 5.0, 7.0, 0.0]]), torch.tensor([[2.0, 3.0]]), 2)
    tensor([ 0., 10., 21.,  0.])
    """
    return (values.T.unflatten(0, (-1, sub_centers)) * z.T.unsqueeze(1)).sum(-1).flatten()
