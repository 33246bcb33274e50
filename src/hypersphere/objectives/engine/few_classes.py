r"""Few classes: the products of a batch with every row at once, and their derivative by hand.

**What is computed.** With S = x·wᵀ, a head needs P = S, S/‖w‖ or S/(‖x‖‖w‖). The loss of a sample depends on its products
alone, so if the margin and the comparison know their slopes, D = ∂L/∂P follows together with the loss, without a graph: at
a sample's own class it is the slope of t = S·ψ(P/S), S the scale; at the others it is the slope of the comparison times
that of φ. :class:`_ClosedForm` holds the whole loss as one autograd function. A margin or an angular function without a
slope gets P from :func:`attach_gradient`, after which everything is plain autograd.

**How the gradient flows back.** From D it takes two matrix products of D·r·q (r and q are the inverse lengths that
divided) and one scaled copy each of x and w (:func:`propagate`):

.. math:: ∂L/∂x = (D r q) w − x \, Σ_j D_{ij} P_{ij}/‖x‖², \quad ∂L/∂w = (D r q)^T x − w \, Σ_i D_{ij} P_{ij}/‖w‖²

**Why.** Normalized copies of x and w are never built, and a head of ten classes, which is limited by the number of calls,
needs half of them. The memory of every (n, c) tensor runs over the samples first: on a CPU the product w·xᵀ of few classes
takes half the time of x·wᵀ, and sums over classes use the vector units. A second derivative computes the same losses again
by plain autograd.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from ...geometry import accumulation_dtype, matmul, norm, normalize
from ..margins.margin import AngularScore, Context, Margin, Strength, draw_noise, evaluate_with_slope
from .problem import LossProblem, ScoreFunction, is_plain, select_angular, uses_target
from .scores import (
    MAX_NORM,
    MIN_NORM,
    Batch,
    Target,
    TargetProducts,
    compute_target,
    compute_target_logit,
    expand_scale,
    find_hardest,
    find_nearest_centers,
    scatter_to_centers,
    score_cosines,
    score_cosines_with_slope,
    sum_by_center,
)

Recompute = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""The same losses, of features, weight and bias, by plain autograd: for a second derivative."""


class ProductForm(NamedTuple):
    """What divides the products: ‖x‖ where ``by_x``, ‖w‖ where ``by_weight``; and a scale, which needs ``by_x``.

    Sub-centers need ``by_weight``. ``masked`` puts −∞ at each sample's own class.
    """

    sub_centers: int = 1
    by_x: bool = True
    by_weight: bool = True
    scale: float = 1.0
    masked: bool = False


class RawProducts(NamedTuple):
    """The products of a batch with all rows of a weight, without a graph.

    Attributes:
        raw: x·w, over ‖w‖ where that divides, the largest over the sub-centers of a class.
        nearest: Which sub-center that was, as numbers of the same dtype; None for one center.
        times: scale/‖x‖, by which ``raw`` is multiplied; None where ‖x‖ does not divide.
        norms: ‖x‖.
        lengths: ‖w‖ of every row.
    """

    raw: Float[Tensor, "n c"]
    nearest: Float[Tensor, "n c"] | None
    times: Float[Tensor, "n"] | None
    norms: Float[Tensor, "n"]
    lengths: Float[Tensor, "ck"]


class Products(NamedTuple):
    """The products of a batch with all rows of a weight, with gradients.

    Attributes:
        others: The products, the largest over the sub-centers of a class; −∞ at each sample's own class if masked.
        own: Those of each sample with its own class.
        norms: ‖x‖.
        lengths: ‖w‖ of every row.
    """

    others: Float[Tensor, "n c"]
    own: Float[Tensor, "n"]
    norms: Float[Tensor, "n"]
    lengths: Float[Tensor, "ck"]


def compute_few_classes(problem: LossProblem, chunk: int = 0) -> Float[Tensor, "n"] | None:
    """Return the loss of each sample; None if a length is outside of [``MIN_NORM``, ``MAX_NORM``]. It is a LossMethod."""
    scores, scale, labels = problem.scores, problem.scale, problem.labels
    features, weight, bias = problem.batch.features, problem.weight, problem.bias
    dtype, plain, by_norm = accumulation_dtype(features, weight), is_plain(scores), isinstance(scale, str)
    # Plain products include a scale that is a number; one that may be learned is applied apart.
    apart = plain and isinstance(scale, Tensor)
    form = ProductForm(
        sub_centers=scores.sub_centers,
        by_x=not (plain and by_norm),
        by_weight=not (plain and scores.weight_norm),
        scale=float(scale) if plain and isinstance(scale, (int, float)) else 1.0,
        masked=plain and not apart,
    )
    x, weight, bias = features.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    found = multiply(x, weight, form)
    if found is None:
        return None
    noise = draw_noise(scores.margin, found.norms)
    g = select_angular(scores, labels)
    rest = _Settings(problem, noise, form, g)
    if not isinstance(scale, Tensor):
        each = found.norms if isinstance(scale, str) else float(scale)
        batch = Batch(found.norms, each, labels, problem.ignored, noise)
        # A margin updates its statistics when its hook is called; a second derivative calls it again, with these buffers.
        buffers = {f"margin.{name}": b.clone() for name, b in _list_buffers(scores.margin)}
        recompute = functools.partial(_recompute, rest, buffers)
        loss = _compute_closed_form(x, weight, bias, found, rest, batch, recompute)
        if loss is not None:
            return loss
    return _compute_by_autograd(rest, found, x, weight, bias)


def multiply(x: Float[Tensor, "n d"], weight: Float[Tensor, "ck d"], form: ProductForm) -> RawProducts | None:
    r"""Compute the products without a graph; None if a length is unusual.

    From ``MIN_NORM`` to ``MAX_NORM`` no square overflows and no gradient needs a bound.

    >>> multiply(torch.tensor([[3.0, 4.0]]), torch.eye(2), ProductForm()).times
    tensor([0.2000])
    >>> multiply(torch.zeros(1, 2), torch.eye(2), ProductForm()) is None
    True
    """
    if not x.shape[0]:
        return None
    with torch.no_grad():
        norms, lengths = torch.linalg.vector_norm(x, dim=1), torch.linalg.vector_norm(weight, dim=1)
        for measured in (norms, lengths):
            least, most = torch.aminmax(measured)
            if not (least.item() >= MIN_NORM and most.item() <= MAX_NORM):
                return None
        each = matmul(weight, x.T)
        if form.by_weight:
            each.div_(lengths.unsqueeze(1))
        raw, nearest = (each.T, None) if form.sub_centers == 1 else find_nearest_centers(each.T, form.sub_centers)
        times = norms.reciprocal().mul_(form.scale) if form.by_x else None
        return RawProducts(raw, nearest, times, norms, lengths)


def scale_products(found: RawProducts) -> Float[Tensor, "n c"]:
    """Return the products that a head needs, always in a new tensor."""
    return found.raw.clone() if found.times is None else found.raw * found.times.unsqueeze(1)


def attach_gradient(
    x: Float[Tensor, "n d"],
    weight: Float[Tensor, "ck d"],
    labels: Int[Tensor, "n"],
    found: RawProducts,
    form: ProductForm,
) -> Products:
    r"""Return the result of :func:`multiply` with its gradients.

    >>> x, w = torch.tensor([[3.0, 4.0]]), torch.eye(2)
    >>> met = attach_gradient(x, w, torch.tensor([1]), multiply(x, w, ProductForm()), ProductForm())
    >>> met.others, met.own, met.norms
    (tensor([[0.6000, 0.8000]]), tensor([0.8000]), tensor([5.]))
    """
    return Products(*_AttachGradient.apply(x, weight, labels.unsqueeze(1), form, found))


def propagate(
    x: Tensor,
    weight: Tensor,
    found: RawProducts,
    form: ProductForm,
    d: Float[Tensor, "n c"],
    d_norms: Float[Tensor, "n"] | None,
    d_lengths: Float[Tensor, "ck"] | None,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, Tensor | None]:
    """Return ∂L/∂x and ∂L/∂w, those that are needed, from ∂L/∂raw, ∂L/∂‖x‖ and ∂L/∂‖w‖; ``d`` is overwritten."""
    k, inner_x, inner_w = form.sub_centers, None, None
    along = d * found.raw if form.by_x or (form.by_weight and k == 1) else None
    if needs[0] and form.by_x and along is not None:
        inner_x = along.sum(1)
    each = d if found.nearest is None else scatter_to_centers(d, found.nearest, k)
    if needs[1] and form.by_weight:
        inner_w = along.sum(0) if along is not None and k == 1 else sum_by_center(each, found.raw, k)
    if form.by_weight:
        each.div_(found.lengths)
    d_x = _multiply_and_project(x, found.norms, inner_x, d_norms, each, weight) if needs[0] else None
    d_weight = _multiply_and_project(weight, found.lengths, inner_w, d_lengths, each.T, x) if needs[1] else None
    return d_x, d_weight


def _multiply_and_project(
    rows: Tensor, lengths: Tensor, along: Tensor | None, d_length: Tensor | None, left: Tensor, right: Tensor
) -> Tensor:
    """Return left·right plus what acts along the rows: −Σ D·P/‖x‖² of the division by their length, and ∂L/∂‖x‖."""
    if along is None and d_length is None:
        return matmul(left, right)
    if along is None:
        assert d_length is not None
        return (rows * (d_length / lengths).unsqueeze(1)).addmm_(left, right)
    factor = along.div_(lengths) if d_length is None else along.div_(lengths).sub_(d_length)
    # The product first: its result is still in the cache when the rows are subtracted from it.
    return matmul(left, right).addcmul_(rows, factor.div_(lengths).unsqueeze(1), value=-1)


class _AttachGradient(torch.autograd.Function):
    """Products that are already known, and :func:`propagate` as their derivative."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, column: Tensor, form: ProductForm, found: RawProducts
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        others = scale_products(found)
        own = others.gather(1, column).squeeze(1)
        ctx.save_for_backward(x, weight, column, *found)
        ctx.form = form
        ctx.set_materialize_grads(False)
        return others.scatter_(1, column, -torch.inf) if form.masked else others, own, found.norms, found.lengths

    @staticmethod
    def backward(
        ctx: Any, d_others: Tensor | None, d_own: Tensor | None, d_norms: Tensor | None, d_lengths: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, weight, column, *rest = ctx.saved_tensors
        found, form, needs = RawProducts(*rest), ctx.form, ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():
            arrived = (d_others, d_own, d_norms, d_lengths)
            return (*_differentiate_plainly(x, weight, column, form, arrived, needs), *[None] * 3)
        d = torch.zeros_like(found.raw) if d_others is None else d_others
        # At a sample's own class, the gradient is that of its own product.
        d = d.scatter(1, column, 0.0) if d_own is None else d.scatter(1, column, d_own.unsqueeze(1))
        d = d if found.times is None else d.mul_(found.times.unsqueeze(1))
        return (*propagate(x, weight, found, form, d, d_norms, d_lengths, needs), None, None, None)


def _differentiate_plainly(
    x: Tensor,
    weight: Tensor,
    column: Tensor,
    form: ProductForm,
    arrived: tuple[Tensor | None, ...],
    needs: tuple[bool, ...],
) -> list[Tensor | None]:
    """Return the same gradients with a graph of their own, for a second derivative."""
    rows = normalize(weight) if form.by_weight else weight
    found = (form.scale * normalize(x) if form.by_x else x) @ rows.T
    found = found if form.sub_centers == 1 else found.unflatten(1, (-1, form.sub_centers)).amax(-1)
    others = found.scatter(1, column, -torch.inf if form.masked else found.detach().gather(1, column))
    outputs = (others, found.gather(1, column).squeeze(1), norm(x), norm(weight))
    known = [(output, d) for output, d in zip(outputs, arrived, strict=True) if d is not None]
    wanted = [t for t, need in zip((x, weight), needs, strict=True) if need]
    by = torch.autograd.grad([o for o, _ in known], wanted, [d for _, d in known], create_graph=True, allow_unused=True)
    results = iter(by)
    return [next(results) if need else None for need in needs]


class _Settings(NamedTuple):
    """What the losses depend on besides features, weight and bias."""

    problem: LossProblem
    noise: Mapping[Strength, Tensor] | None
    form: ProductForm
    g: AngularScore


def _compute_by_autograd(
    rest: _Settings, found: RawProducts, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Float[Tensor, "n"]:
    """Compute the losses from products with gradients, by autograd."""
    problem = rest.problem
    labels, scores, scale, comparison = problem.labels, problem.scores, problem.scale, problem.comparison
    plain = is_plain(scores)
    apart = plain and isinstance(scale, Tensor)
    met = attach_gradient(x, weight, labels, found, rest.form)
    each = (
        met.norms if isinstance(scale, str) else expand_scale(x, scale) if isinstance(scale, Tensor) else float(scale)
    )
    batch = Batch(met.norms, each, labels, problem.ignored, rest.noise)
    # If no hook uses the target's angle, its product with the scale is all that is needed.
    if plain and not uses_target(scores.margin):
        cos, logit = None, met.own * each if apart else met.own
    else:
        target = _split_target(met, batch, scores, rest.g, plain, apart)
        cos, logit = target.cos, compute_target_logit(scores, batch, target, rest.g, problem.annealing)
    if bias is not None:
        logit = logit + (bias[labels] if bias.numel() > 1 else bias)
    if plain:
        z = met.others * each.unsqueeze(-1) if apart and isinstance(each, Tensor) else met.others
        z = z if bias is None else z + bias
    else:
        hardest, lengths = find_hardest(scores, met.others, labels), met.lengths if scores.weight_norm else None
        each_bias = None if bias is None else bias.expand(scores.num_classes)
        z = score_cosines(scores, slice(None), met.others, lengths, each_bias, batch, cos, hardest)
    if apart or not plain:
        z = z.scatter(1, labels.unsqueeze(-1), -torch.inf)
    loss = comparison.loss(logit, comparison.of_all(z), scores.num_classes)
    penalty = scores.margin.penalty(Context(rest.g, batch.norms, labels, problem.ignored, cos, noise=batch.noise))
    return loss if penalty is None else loss + penalty


def _split_target(
    met: Products, batch: Batch, scores: ScoreFunction, g: AngularScore, plain: bool, apart: bool
) -> Target:
    """Return the target's plain logit, cosine and length; plain products include the scale, unless it is ``apart``."""
    assert batch.labels is not None
    length = met.lengths[batch.labels] if scores.weight_norm else None
    if not plain or apart:
        return compute_target(batch, TargetProducts(None, met.own.clamp(-1, 1), length), g)
    scale = batch.scale if length is None else batch.scale * length
    return Target(met.own, (met.own / scale).clamp(-1, 1), length)


def _list_buffers(margin: Margin) -> Iterator[tuple[str, Tensor]]:
    """Return the margin's buffers by name, without walking through margins that have none."""
    return margin.named_buffers() if margin._buffers or margin._modules else iter(())


def _recompute(
    rest: _Settings, buffers: dict[str, Tensor], x: Tensor, weight: Tensor, bias: Tensor | None
) -> Float[Tensor, "n"]:
    """Compute the losses by autograd, with a margin whose buffers are these."""
    found = multiply(x, weight, rest.form)
    assert found is not None
    own = {name: buffer.clone() for name, buffer in buffers.items()}
    result: Tensor = functional_call(_AutogradLosses(rest), own, (found, x, weight, bias))
    return result


class _AutogradLosses(nn.Module):
    """The losses as a module that holds the margin, so that it can be called with other buffers."""

    def __init__(self, rest: _Settings):
        super().__init__()
        self.margin, self.rest = rest.problem.scores.margin, rest

    def forward(self, found: RawProducts, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _compute_by_autograd(self.rest, found, x, weight, bias)


class _TargetSlopes(NamedTuple):
    """t without its bias, cos θ if a hook needs it, and ∂t/∂P and ∂t/∂S, None where they are 1 and 0."""

    logit: Tensor
    cos: Tensor | None = None
    by_product: Tensor | float | None = None
    by_scale: Tensor | None = None


class _LossSlopes(NamedTuple):
    """Derivatives of each sample's loss: by P, t, a shared bias and S; and ‖w‖ of the own class if it is part of S."""

    products: Float[Tensor, "n c"]
    logit: Float[Tensor, "n"]
    shared_bias: Float[Tensor, "n"] | None
    scale: Float[Tensor, "n"] | None
    length: Float[Tensor, "n"] | None


def _compute_closed_form(
    x: Float[Tensor, "n d"],
    weight: Float[Tensor, "ck d"],
    bias: Float[Tensor, "..."] | None,
    found: RawProducts,
    rest: _Settings,
    batch: Batch,
    recompute: Recompute,
) -> Float[Tensor, "n"] | None:
    """Return the losses; None if a slope is unknown or an input besides x, w and b may need a gradient."""
    problem, g = rest.problem, rest.g
    scores, comparison, annealing = problem.scores, problem.comparison, problem.annealing
    plain, labels = is_plain(scores), problem.labels
    many = bias is not None and bias.numel() > 1
    if (isinstance(annealing, Tensor) and annealing.requires_grad) or (
        not plain and (many or isinstance(batch.scale, Tensor))
    ):
        return None
    differentiable = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias))
    column = labels.unsqueeze(1)
    with torch.no_grad():
        z = scale_products(found)
        length = found.lengths[labels] if scores.weight_norm else None
        target = _differentiate_target(z.gather(1, column).squeeze(1), length, batch, scores, g, annealing)
        others = None if target is None else _differentiate_others(z, target, batch, scores)
        if target is None or others is None:
            return None
        (z, slope), logit = others, target.logit
        if bias is not None:
            z, logit = z + bias, logit + (bias[labels] if many else bias)
        z.scatter_(1, column, -torch.inf)
        summary, slope_by = comparison.of_all_with_slope(z)
        loss, by_logit, by_summary = comparison.loss_with_slopes(logit, summary, scores.num_classes)
        if not differentiable:
            return loss
        d = slope_by(by_summary)
        d_shared = None if bias is None or many else d.scatter_(1, column, by_logit.unsqueeze(1)).sum(1)
        d = d if slope is None else d.mul_(slope)
        mine = by_logit if target.by_product is None else by_logit * target.by_product
        d.scatter_(1, column, mine.unsqueeze(1))
        d_scale = None if target.by_scale is None else by_logit * target.by_scale
    slopes = _LossSlopes(d, by_logit, d_shared, d_scale, length)
    result: Tensor = _ClosedForm.apply(x, weight, bias, labels, rest.form, found, slopes, loss, recompute)
    return result


def _differentiate_target(
    own: Tensor, length: Tensor | None, batch: Batch, scores: ScoreFunction, g: AngularScore, annealing: float | Tensor
) -> _TargetSlopes | None:
    """Return t and its slopes; plain products include the scale, P = S·cos θ, others are cos θ itself."""
    plain, margin = is_plain(scores), scores.margin
    if plain and not uses_target(scores.margin):
        return _TargetSlopes(own)
    scale = batch.scale if length is None else batch.scale * length
    cos = (own / scale if plain else own).clamp_(-1, 1)
    context = Context(g, batch.norms, batch.labels, batch.ignored, noise=batch.noise)
    if type(margin).penalty is not Margin.penalty and margin.penalty(context) is not None:
        return None
    score: tuple[Tensor, Tensor | float] | None = (cos, 1.0) if plain else evaluate_with_slope(g, cos)
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
        return _TargetSlopes(value * scale, cos, slope * scale)
    # t = S·ψ(P/S); written from the plain logit on, it is that logit exactly where there is no margin.
    return _TargetSlopes(own + effect * scale, cos, slope, value - cos * slope if isinstance(scale, Tensor) else None)


def _differentiate_others(
    z: Tensor, target: _TargetSlopes, batch: Batch, scores: ScoreFunction
) -> tuple[Tensor, Tensor | None] | None:
    """Return the other classes' logits without biases, possibly in ``z``, and ∂z/∂P, None where it is 1."""
    if is_plain(scores):
        return z, None
    hardest = find_hardest(scores, z, batch.labels)
    found = score_cosines_with_slope(scores, slice(None), z, batch, target.cos, hardest)
    return None if found is None else (found[0] * batch.scale, found[1].mul_(batch.scale))


class _ClosedForm(torch.autograd.Function):
    """Losses whose derivatives are already known: the backward pass scales D and propagates it to x, w and b."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        form: ProductForm,
        found: RawProducts,
        slopes: _LossSlopes,
        loss: Tensor,
        recompute: Recompute,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias, labels, *found, *slopes)
        ctx.form, ctx.recompute = form, recompute
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, labels, *rest = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            wanted = [t for t, need in zip((x, weight, bias), needs, strict=True) if need]
            known = iter(torch.autograd.grad(ctx.recompute(x, weight, bias), wanted, grad, create_graph=True))
            return (*[next(known) if need else None for need in needs], *[None] * 6)
        found, slopes = RawProducts(*rest[: len(RawProducts._fields)]), _LossSlopes(*rest[len(RawProducts._fields) :])
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
        return (*propagate(x, weight, found, ctx.form, d, d_norms, d_lengths, needs[:2]), d_bias, *[None] * 6)
