"""The losses of a head of few classes, from all products at once."""

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from ..geometry import accumulation_dtype
from .closed import closed_losses
from .comparisons import Comparison
from .head_options import Scale
from .margins.margin import AngularScore, Context, Margin, Strength, drawn_for
from .products import Found, How, Products, multiply, products
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
    apart = plain and isinstance(scale, Tensor)
    how = How(
        sub_centers=scores.sub_centers,
        by_x=not (plain and by_norm),
        by_weight=not (plain and scores.weight_norm),
        scale=float(scale) if plain and isinstance(scale, (int, float)) else 1.0,
        masked=plain and not apart,
    )
    x, weight, bias = features.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    found = multiply(x, weight, how)
    if found is None:
        return None
    noise, g = drawn_for(scores.margin, found.norms), angular_of(scores, labels)
    rest = _Rest(labels, ignored, noise, how, scores, comparison, scale, g, annealing)
    if not isinstance(scale, Tensor):
        each = found.norms if isinstance(scale, str) else float(scale)
        batch = Batch(found.norms, each, labels, ignored, noise)
        # A margin moves its statistics when it is asked; a second derivative asks again, with the buffers of now.
        buffers = {f"margin.{name}": b.clone() for name, b in _buffers_of(scores.margin)}
        again = functools.partial(_again, rest, buffers)
        loss = closed_losses(x, weight, bias, found, how, batch, scores, comparison, g, annealing, again)
        if loss is not None:
            return loss
    return _losses(rest, found, x, weight, bias)


def _buffers_of(margin: Margin) -> Iterator[tuple[str, Tensor]]:
    """The margin's buffers by name; most margins have none, and are not looked through."""
    return margin.named_buffers() if margin._buffers or margin._modules else iter(())


class _Rest(NamedTuple):
    """What the losses depend on besides features, weight and bias."""

    labels: Tensor
    ignored: Tensor | None
    noise: Mapping[Strength, Tensor] | None
    how: How
    scores: Scores
    comparison: Comparison
    scale: Scale
    g: AngularScore
    annealing: float | Tensor


def _losses(rest: _Rest, found: Found, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The losses from products with their gradients on, by autograd."""
    labels, scores, scale, plain = rest.labels, rest.scores, rest.scale, is_plain(rest.scores)
    apart = plain and isinstance(scale, Tensor)
    met = products(x, weight, labels, found, rest.how)
    each = met.norms if isinstance(scale, str) else scale_of(x, scale) if isinstance(scale, Tensor) else float(scale)
    batch = Batch(met.norms, each, labels, rest.ignored, rest.noise)
    # Where nobody looks at the target's angle, its product with the scale is all there is to know.
    if plain and not looks_at_target(scores.margin):
        cos, logit = None, met.own * each if apart else met.own
    else:
        target = _target(met, batch, scores, rest.g, plain, apart)
        cos, logit = target.cos, target_logit(scores, batch, target, rest.g, rest.annealing)
    if bias is not None:
        logit = logit + (bias[labels] if bias.numel() > 1 else bias)
    if plain:
        z = met.others * each.unsqueeze(-1) if apart and isinstance(each, Tensor) else met.others
        z = z if bias is None else z + bias
    else:
        hardest, lengths = hardest_of(scores, met.others, labels), met.lengths if scores.weight_norm else None
        each_bias = None if bias is None else bias.expand(scores.num_classes)
        z = scores_of_cosines(scores, slice(None), met.others, lengths, each_bias, batch, cos, hardest)
    if apart or not plain:
        z = z.scatter(1, labels.unsqueeze(-1), -torch.inf)
    loss = rest.comparison.loss(logit, rest.comparison.of_all(z), scores.num_classes)
    penalty = scores.margin.penalty(Context(rest.g, batch.norms, labels, rest.ignored, cos, noise=batch.noise))
    return loss if penalty is None else loss + penalty


def _again(rest: _Rest, buffers: dict[str, Tensor], x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The losses by autograd, with a margin whose buffers are these."""
    found = multiply(x, weight, rest.how)
    assert found is not None
    own = {name: buffer.clone() for name, buffer in buffers.items()}
    result: Tensor = functional_call(_Whole(rest), own, (found, x, weight, bias))
    return result


class _Whole(nn.Module):
    """The losses as a module that holds the margin, so that it can be called with other buffers."""

    def __init__(self, rest: _Rest):
        super().__init__()
        self.margin, self.rest = rest.scores.margin, rest

    def forward(self, found: Found, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _losses(self.rest, found, x, weight, bias)


def _target(met: Products, batch: Batch, scores: Scores, g: AngularScore, plain: bool, apart: bool) -> Target:
    """The target classes' side; plain products carry the scale, unless it is ``apart``."""
    assert batch.labels is not None
    length = met.lengths[batch.labels] if scores.weight_norm else None
    if not plain or apart:
        return target_of(batch, Met(None, met.own.clamp(-1, 1), length), g)
    scale = batch.scale if length is None else batch.scale * length
    return Target(met.own, (met.own / scale).clamp(-1, 1), length)
