"""From features and class weights to scores, for any part of the classes: the one definition the dense and the large head share."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import functional_call

from ..angular import Angular, Cosine
from ..geometry import norm, normalize
from .margins import Margin

MIN_NORM = 1e-4
"""The gradient of x/‖x‖ grows as 1/‖x‖. Features and class weights shorter than this get the gradient of one of this length;
their values, and everything about longer ones, are exact. Forms scaled by ‖x‖ need no bound on x, those by ‖w‖‖x‖ none at all."""


class Features(NamedTuple):
    """A batch as the head sees it: directions x̂, norms ‖x‖, the scale of each sample, and scale·x̂ (x itself where the scale is ‖x‖)."""

    directions: Float[Tensor, "n d"]
    norms: Float[Tensor, "n"]
    scale: Float[Tensor, "n"]
    scaled: Float[Tensor, "n d"]


class Scores(NamedTuple):
    r"""z = scale·φ(g(θ)) + b for a part of the classes, from features (n, d) and weights (c·K, d) → (n, c).

    Row c·K + k of the weight is the k-th sub-centre of class c; the class's cosine is the largest of its K.
    ``weight_norm`` puts ‖w‖ into the scale.
    """

    margin: Margin
    angular: Angular
    num_classes: int
    sub_centers: int = 1
    weight_norm: bool = False
    matmul_dtype: torch.dtype | None = None


def features_of(x: Float[Tensor, "n d"], scale: Float[Tensor, "..."] | float | str) -> Features:
    """Directions and scales of ``x``; ``scale`` is a number, a 0-d or (n,) tensor, ``"feature_norm"`` or ``"norms"``."""
    directions = normalize(x, min_norm=0.0 if isinstance(scale, str) else MIN_NORM)
    norms = (x * directions).sum(-1)
    if isinstance(scale, str):
        return Features(directions, norms, norms, x)
    per_sample = torch.as_tensor(scale, dtype=x.dtype, device=x.device).expand(len(x))
    return Features(directions, norms, per_sample, per_sample.unsqueeze(-1) * directions)


def is_plain(scores: Scores) -> bool:
    """Whether the other classes' scores are nothing but scaled cosines."""
    return isinstance(scores.angular, Cosine) and type(scores.margin).others is Margin.others


def all_scores(
    scores: Scores,
    weight: Float[Tensor, "ck d"],
    bias: Float[Tensor, "c"] | None,
    x: Features,
    target: Float[Tensor, "n"] | None,
) -> Float[Tensor, "n c"]:
    """The scores of all classes at once."""
    direction = normalize(weight, min_norm=0.0 if scores.weight_norm else MIN_NORM)
    if is_plain(scores):
        z = _nearest(scores, x.scaled, weight if scores.weight_norm else direction)
        return z if bias is None else z + bias
    lengths = norm(weight) if scores.weight_norm else None
    return scores_of_cosines(scores, slice(None), _nearest(scores, x.directions, direction), lengths, bias, x, target)


def scores_of_cosines(
    scores: Scores,
    part: slice,
    cos: Float[Tensor, "n c"],
    lengths: Float[Tensor, "c"] | None,
    bias: Float[Tensor, "c"] | None,
    x: Features,
    target: Float[Tensor, "n"] | None,
) -> Float[Tensor, "n c"]:
    """The scores of the classes in ``part``, whose cosines, lengths and biases these are, through the hooks."""
    column = None if target is None else target.unsqueeze(-1)
    z = x.scale.unsqueeze(-1) * scores.margin.others(
        cos.clamp(-1, 1), column, x.norms.unsqueeze(-1), angular_of(scores, part)
    )
    z = z if lengths is None else z * lengths
    return z if bias is None else z + bias


def angular_of(scores: Scores, classes: slice | Int[Tensor, "n"]) -> Callable[[Tensor], Tensor]:
    """g with the parameters of these classes, where it has one per class."""
    own = {
        name: p[classes]
        for name, p in scores.angular.named_parameters(recurse=False)
        if p.shape == (scores.num_classes,)
    }
    return partial(functional_call, scores.angular, own) if own else scores.angular


def _nearest(scores: Scores, x: Tensor, w: Tensor) -> Tensor:
    dtype = scores.matmul_dtype or x.dtype
    products = (x.to(dtype) @ w.to(dtype).T).to(x.dtype)
    return products if scores.sub_centers == 1 else products.unflatten(-1, (-1, scores.sub_centers)).max(-1).values
