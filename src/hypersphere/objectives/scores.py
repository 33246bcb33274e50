"""From features and class weights to scores, for any part of the classes: one definition for dense and large heads."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from ..angular import Angular, Cosine
from ..geometry import norm, normalize
from .margins import Margin
from .margins.margin import AngularScore, Context, Sloped, Strength, sloped

MIN_NORM = 1e-4
"""The gradient of x/‖x‖ grows as 1/‖x‖. Features and class weights shorter than this get the gradient of one of this
length; their values, and everything about longer ones, are exact. Forms scaled by ‖x‖ need no bound on x, those by
‖w‖‖x‖ none at all."""
LONGEST = 1e15
"""Squares of longer vectors may leave the range of float32."""


class Batch(NamedTuple):
    """A batch as the hooks see it; the attributes are those of :class:`BatchFeatures`, and one scale may be of all."""

    norms: Float[Tensor, "n"]
    scale: Float[Tensor, "n"] | float
    labels: Int[Tensor, "n"] | None = None
    ignored: Bool[Tensor, "n"] | None = None
    noise: Mapping[Strength, Tensor] | None = None


class BatchFeatures(NamedTuple):
    """A batch as the head sees it.

    Attributes:
        directions: x̂.
        norms: ‖x‖.
        scale: The scale of each sample's logits.
        scaled: scale·x̂, which is x itself where the scale is ‖x‖.
        labels: The class of each sample, counted over all classes.
        ignored: Which samples do not count, None for none; their label is 0 and means nothing.
        noise: What was drawn for the samples in this pass, by the strength that it is for.
    """

    directions: Float[Tensor, "n d"]
    norms: Float[Tensor, "n"]
    scale: Float[Tensor, "n"]
    scaled: Float[Tensor, "n d"]
    labels: Int[Tensor, "n"] | None = None
    ignored: Bool[Tensor, "n"] | None = None
    noise: Mapping[Strength, Tensor] | None = None


class Scores(NamedTuple):
    r"""z = scale·φ(g(θ)) + b for a part of the classes, from features (n, d) and weights (c·K, d) → (n, c).

    Row c·K + k of the weight is the k-th sub-centre of class c; the class's cosine is the largest of its K.
    ``weight_norm`` puts ‖w‖ into the scale. ``detached`` holds what φ adds to g constant in the backward pass.
    """

    margin: Margin
    angular: Angular
    num_classes: int
    sub_centers: int = 1
    weight_norm: bool = False
    matmul_dtype: torch.dtype | None = None
    detached: bool = False


class Target(NamedTuple):
    """The target classes: the plain logit without bias, cos θ, and the weight's share of the scale, each (n,)."""

    plain: Float[Tensor, "n"]
    cos: Float[Tensor, "n"]
    length: Float[Tensor, "n"] | None


def features_of(
    x: Float[Tensor, "n d"],
    scale: Float[Tensor, "..."] | float | str,
    labels: Int[Tensor, "n"] | None = None,
    ignored: Bool[Tensor, "n"] | None = None,
) -> BatchFeatures:
    """Directions and scales of ``x``; ``scale`` is a number, a 0-d or (n,) tensor, ``"feature_norm"`` or ``"norms"``."""
    directions = normalize(x, min_norm=0.0 if isinstance(scale, str) else MIN_NORM)
    norms = (x * directions).sum(-1)
    if isinstance(scale, str):
        return BatchFeatures(directions, norms, norms, x, labels, ignored)
    per_sample = scale_of(x, scale)
    return BatchFeatures(directions, norms, per_sample, per_sample.unsqueeze(-1) * directions, labels, ignored)


def scale_of(x: Float[Tensor, "n d"], scale: Float[Tensor, "..."] | float) -> Float[Tensor, "n"]:
    """A constant scale for each sample, in the dtype and on the device of ``x``."""
    return torch.as_tensor(scale, dtype=x.dtype, device=x.device).expand(len(x))


class Met(NamedTuple):
    """What a sample's own rows of the weight say, each (n,): the inner product, cos θ and ‖w‖, those that are needed."""

    product: Float[Tensor, "n"] | None
    cos: Float[Tensor, "n"]
    length: Float[Tensor, "n"] | None


def met_by(scores: Scores, x: BatchFeatures, rows: Float[Tensor, "n k d"]) -> Met:
    """The target classes' rows against the samples; nothing else of the loss looks at these rows."""
    direction = normalize(rows, min_norm=0.0 if scores.weight_norm else MIN_NORM)
    cos = (x.directions.unsqueeze(1) * direction).sum(-1)
    nearest = cos.argmax(-1, keepdim=True)
    cos = cos.gather(-1, nearest).squeeze(-1).clamp(-1, 1)
    length = norm(rows).squeeze(-1) if scores.weight_norm else None
    if not isinstance(scores.angular, Cosine):
        return Met(None, cos, length)
    # The inner product has the gradient of the plain softmax also at x = 0 and w = 0, where an angle has none.
    products = (x.scaled.unsqueeze(1) * (rows if scores.weight_norm else direction)).sum(-1)
    return Met(products.gather(-1, nearest).squeeze(-1), cos, length)


def target_of(x: Batch | BatchFeatures, met: Met, g: AngularScore) -> Target:
    """The target classes' side of the loss; g is that of the targets' classes."""
    if met.product is not None:
        return Target(met.product, met.cos, met.length)
    plain = x.scale * g(met.cos)
    return Target(plain if met.length is None else plain * met.length, met.cos, met.length)


def target_logit(
    scores: Scores, x: Batch | BatchFeatures, target: Target, g: AngularScore, annealing: float | Tensor = 0.0
) -> Float[Tensor, "n"]:
    """t without its bias: the plain logit, and scale·(ψ − g)/(1 + λ) more. Calls the margin's target hook, once."""
    if type(scores.margin).target is Margin.target:
        return target.plain
    effect = scores.margin.target(target.cos, Context(g, x.norms, x.labels, x.ignored, noise=x.noise)) - g(target.cos)
    if isinstance(annealing, Tensor) or annealing:
        effect = effect / (1 + annealing)
    effect = effect.detach() if scores.detached else effect
    more = x.scale * (effect if target.length is None else target.length * effect)
    # The margin makes a logit up to 2m − 1 times as large: it must not overflow before the plain logit does.
    return target.plain + more.clamp_min(-torch.finfo(more.dtype).max / 1024)


def looks_at_target(margin: Margin) -> bool:
    """Whether the margin has a hook that wants to know the target's angle."""
    kind = type(margin)
    return kind.target is not Margin.target or kind.penalty is not Margin.penalty


def is_plain(scores: Scores) -> bool:
    """Whether the other classes' scores are nothing but scaled cosines."""
    return isinstance(scores.angular, Cosine) and type(scores.margin).others is Margin.others


def all_scores(
    scores: Scores,
    weight: Float[Tensor, "ck d"],
    bias: Float[Tensor, "c"] | None,
    x: BatchFeatures,
    target: Float[Tensor, "n"] | None,
    classes: slice = slice(None),
) -> Float[Tensor, "n c"]:
    """The scores of ``classes``, whose rows these are, at once; the entries of the targets themselves mean nothing if there is a hook."""
    direction = normalize(weight, min_norm=0.0 if scores.weight_norm else MIN_NORM)
    if is_plain(scores):
        z = _nearest(scores, x.scaled, weight if scores.weight_norm else direction)
        return z if bias is None else z + bias
    lengths = norm(weight) if scores.weight_norm else None
    cos = _nearest(scores, x.directions, direction)
    return scores_of_cosines(scores, classes, cos, lengths, bias, x, target, hardest_of(scores, cos, x.labels))


def hardest_of(scores: Scores, cos: Float[Tensor, "n c"], labels: Int[Tensor, "n"] | None) -> Float[Tensor, "n"] | None:
    """The k-th largest cosine among the other classes, of all of them, for a margin that asks for it."""
    if not scores.margin.hardest or labels is None:
        return None
    others = cos.detach().scatter(1, labels.unsqueeze(-1), -torch.inf)
    return others.topk(min(scores.margin.hardest, scores.num_classes), -1).values[:, -1]


def scores_of_cosines(
    scores: Scores,
    classes: slice | Int[Tensor, "c"],
    cos: Float[Tensor, "n c"],
    lengths: Float[Tensor, "c"] | None,
    bias: Float[Tensor, "c"] | None,
    x: Batch | BatchFeatures,
    target: Float[Tensor, "n"] | None,
    hardest: Float[Tensor, "n"] | None = None,
) -> Float[Tensor, "n c"]:
    """The scores of ``classes``, whose cosines, lengths and biases these are, through the hooks."""
    context, inside = _context_of(scores, classes, x, target, hardest), _inside(scores, cos)
    z = scores.margin.others(inside, context)
    if scores.detached:
        plain = context.g(inside)
        z = plain + (z - plain).detach()
    z = z * (x.scale.unsqueeze(-1) if isinstance(x.scale, Tensor) else x.scale)
    z = z if lengths is None else z * lengths
    return z if bias is None else z + bias


@torch.no_grad()
def others_with_slope(
    scores: Scores,
    classes: slice | Int[Tensor, "c"],
    cos: Float[Tensor, "n c"],
    x: Batch | BatchFeatures,
    target: Float[Tensor, "n"] | None,
    hardest: Float[Tensor, "n"] | None = None,
) -> Sloped | None:
    """φ of ``classes`` and its derivative by the cosines, a new tensor, before any scale; None where it is not known."""
    context, inside = _context_of(scores, classes, x, target, hardest), _inside(scores, cos)
    found = scores.margin.others_with_slope(inside, context)
    if found is None or not scores.detached:
        return found
    plain = sloped(context.g, inside)
    return None if plain is None else (found[0], plain[1])


def _context_of(
    scores: Scores, classes: slice | Tensor, x: Batch | BatchFeatures, target: Tensor | None, hardest: Tensor | None
) -> Context:
    """What the hook on the others may look at, as columns."""
    norms, labels, ignored, own, kth = (
        None if t is None else t.unsqueeze(-1) for t in (x.norms, x.labels, x.ignored, target, hardest)
    )
    noise = None if x.noise is None else {strength: z.unsqueeze(-1) for strength, z in x.noise.items()}
    return Context(angular_of(scores, classes), norms, labels, ignored, own, kth, noise)


def _inside(scores: Scores, cos: Tensor) -> Tensor:
    # The k-th largest cosine is compared with the cosines as they were found, before rounding is cut off.
    return cos if scores.margin.hardest else cos.clamp(-1, 1)


def angular_of(scores: Scores, classes: slice | Int[Tensor, "..."]) -> AngularScore:
    """g with the parameters of these classes, where it has one per class."""
    parameters = scores.angular._parameters.items()
    own = {name: p[classes] for name, p in parameters if p is not None and p.shape == (scores.num_classes,)}
    return _Own(scores.angular, own) if own else scores.angular


class _Own:
    """An angular function with the parameters of some classes in place of its own."""

    def __init__(self, angular: Angular, own: dict[str, Tensor]):
        self.angular, self.own = angular, own

    def __call__(self, cos: Tensor) -> Tensor:
        return functional_call(self.angular, self.own, (cos,))

    def at(self, theta: Tensor) -> Tensor:
        return functional_call(_At(self.angular), {f"angular.{name}": p for name, p in self.own.items()}, (theta,))

    def span(self, like: Tensor) -> float | Tensor:
        return self.angular.span(like)

    def with_slope(self, cos: Tensor) -> None:
        return None


class _At(nn.Module):
    """``angular.at`` as a module's forward, which is what functional_call calls."""

    def __init__(self, angular: Angular):
        super().__init__()
        self.angular = angular

    def forward(self, theta: Tensor) -> Tensor:
        return self.angular.at(theta)


def _nearest(scores: Scores, x: Tensor, w: Tensor) -> Tensor:
    dtype = scores.matmul_dtype or x.dtype
    products = (x.to(dtype) @ w.to(dtype).T).to(x.dtype)
    return products if scores.sub_centers == 1 else products.unflatten(-1, (-1, scores.sub_centers)).max(-1).values
