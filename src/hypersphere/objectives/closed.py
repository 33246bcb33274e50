r"""A head of few classes whose hooks know their slopes: one function from features to losses.

The loss of a sample depends on its products P with the rows, so with the slopes of the hooks and of the comparison its
gradient D = ∂L/∂P is known together with the loss, without a graph: at a sample's own class it is the slope of
t = S·ψ(P/S), S the scale, and at the others that of the comparison, times that of φ. The backward pass multiplies D by the
gradients of the losses and goes on through :func:`~hypersphere.objectives.products.pull`. A head of ten classes is a
matter of calls, not of arithmetic, and this needs half of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .comparisons import Comparison
from .margins.margin import AngularScore, Context, Margin, sloped
from .products import Found, How, pull, scaled
from .scores import Batch, Scores, hardest_of, is_plain, looks_at_target, others_with_slope

Again = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""The same losses, of features, weight and bias, by plain autograd: for a second derivative."""


def closed_losses(
    x: Float[Tensor, "n d"],
    weight: Float[Tensor, "ck d"],
    bias: Float[Tensor, "..."] | None,
    found: Found,
    how: How,
    batch: Batch,
    scores: Scores,
    comparison: Comparison,
    g: AngularScore,
    annealing: float | Float[Tensor, ""],
    again: Again,
) -> Float[Tensor, "n"] | None:
    """The loss of each sample; None where a slope is unknown or something besides x, w and b may get a gradient."""
    plain, labels = is_plain(scores), batch.labels
    many = bias is not None and bias.numel() > 1
    assert labels is not None
    if (isinstance(annealing, Tensor) and annealing.requires_grad) or (
        not plain and (many or isinstance(batch.scale, Tensor))
    ):
        return None
    wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias))
    column = labels.unsqueeze(1)
    with torch.no_grad():
        z = scaled(found)
        length = found.lengths[labels] if scores.weight_norm else None
        target = _target(z.gather(1, column).squeeze(1), length, batch, scores, g, annealing)
        others = None if target is None else _others(z, target, batch, scores)
        if target is None or others is None:
            return None
        (z, slope), logit = others, target.logit
        if bias is not None:
            z, logit = z + bias, logit + (bias[labels] if many else bias)
        z.scatter_(1, column, -torch.inf)
        summary, slope_by = comparison.of_all_with_slope(z)
        loss, by_logit, by_summary = comparison.loss_with_slopes(logit, summary, scores.num_classes)
        if not wanted:
            return loss
        d = slope_by(by_summary)
        d_shared = None if bias is None or many else d.scatter_(1, column, by_logit.unsqueeze(1)).sum(1)
        d = d if slope is None else d.mul_(slope)
        mine = by_logit if target.by_product is None else by_logit * target.by_product
        d.scatter_(1, column, mine.unsqueeze(1))
        d_scale = None if target.by_scale is None else by_logit * target.by_scale
    slopes = _Slopes(d, by_logit, d_shared, d_scale, length)
    result: Tensor = _Closed.apply(x, weight, bias, labels, how, found, slopes, loss, again)
    return result


class _Target(NamedTuple):
    """t without its bias, cos θ where somebody looks at it, and ∂t/∂P and ∂t/∂S, None where they are 1 and 0."""

    logit: Tensor
    cos: Tensor | None = None
    by_product: Tensor | float | None = None
    by_scale: Tensor | None = None


class _Slopes(NamedTuple):
    """By the loss of each sample: ∂L/∂P, ∂L/∂t, ∂L/∂b of a shared bias, ∂L/∂S; and ‖w‖ of the own class if it is in S."""

    products: Float[Tensor, "n c"]
    logit: Float[Tensor, "n"]
    shared_bias: Float[Tensor, "n"] | None
    scale: Float[Tensor, "n"] | None
    length: Float[Tensor, "n"] | None


def _target(
    own: Tensor, length: Tensor | None, batch: Batch, scores: Scores, g: AngularScore, annealing: float | Tensor
) -> _Target | None:
    """The target's side: plain products carry the scale, P = S·cos θ, others are cos θ itself."""
    plain, margin = is_plain(scores), scores.margin
    if plain and not looks_at_target(margin):
        return _Target(own)
    scale = batch.scale if length is None else batch.scale * length
    cos = (own / scale if plain else own).clamp_(-1, 1)
    context = Context(g, batch.norms, batch.labels, batch.ignored, noise=batch.noise)
    if type(margin).penalty is not Margin.penalty and margin.penalty(context) is not None:
        return None
    score: tuple[Tensor, Tensor | float] | None = (cos, 1.0) if plain else sloped(g, cos)
    own_hook = type(margin).target is not Margin.target
    psi = margin.target_with_slope(cos, context) if own_hook and score is not None else score
    if score is None or psi is None:
        return None
    (value, slope), effect = psi, psi[0] - score[0]
    if scores.detached or isinstance(annealing, Tensor) or annealing:
        effect = effect / (1 + annealing)
        value = score[0] + effect
        slope = score[1] if scores.detached else score[1] + (slope - score[1]) / (1 + annealing)
    if not plain:
        return _Target(value * scale, cos, slope * scale)
    # t = S·ψ(P/S); written from the plain logit on, it is that logit exactly where there is no margin.
    return _Target(own + effect * scale, cos, slope, value - cos * slope if isinstance(scale, Tensor) else None)


def _others(z: Tensor, target: _Target, batch: Batch, scores: Scores) -> tuple[Tensor, Tensor | None] | None:
    """The other classes' logits without biases, in a new tensor or that of ``z``, and ∂z/∂P, None where it is 1."""
    if is_plain(scores):
        return z, None
    found = others_with_slope(scores, slice(None), z, batch, target.cos, hardest_of(scores, z, batch.labels))
    return None if found is None else (found[0] * batch.scale, found[1].mul_(batch.scale))


class _Closed(torch.autograd.Function):
    """Losses that are known, and the way back from them."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        how: How,
        found: Found,
        slopes: _Slopes,
        loss: Tensor,
        again: Again,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias, labels, *found, *slopes)
        ctx.how, ctx.again = how, again
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, labels, *rest = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            wanted = [t for t, need in zip((x, weight, bias), needs, strict=True) if need]
            known = iter(torch.autograd.grad(ctx.again(x, weight, bias), wanted, grad, create_graph=True))
            return (*[next(known) if need else None for need in needs], *[None] * 6)
        found, slopes = Found(*rest[: len(Found._fields)]), _Slopes(*rest[len(Found._fields) :])
        d = slopes.products * (grad if found.times is None else grad * found.times).unsqueeze(1)
        d_norms = d_lengths = d_bias = None
        if slopes.scale is not None:
            d_norms = d_scale = grad * slopes.scale
            if slopes.length is not None:
                d_norms = d_scale * slopes.length
                d_lengths = torch.zeros_like(found.lengths).index_add_(0, labels, d_scale * found.norms)
        if needs[2] and slopes.shared_bias is not None:
            d_bias = torch.dot(grad, slopes.shared_bias).view_as(bias)
        elif needs[2]:
            column = labels.unsqueeze(1)
            each = slopes.products.scatter(1, column, slopes.logit.unsqueeze(1))
            d_bias = torch.mv(each.T, grad)
        return (*pull(x, weight, found, ctx.how, d, d_norms, d_lengths, needs[:2]), d_bias, *[None] * 6)
