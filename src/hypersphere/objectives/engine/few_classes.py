r"""Losses of few classes: one matrix product, and a backward pass written by hand.

**What is computed.** All logits of a sample are functions of its products P with the class weights. :func:`choose_form` chooses
the products that save the most work. With the scale s, the margin's ψ on the target and φ on the others:

=================================  ==========  ====================  ==============
head                               P           logits of the others  target's logit
=================================  ==========  ====================  ==============
g = cos, no φ, s a number          s·cos θ     P                     s·ψ(P/s)
g = cos, no φ, ``"feature_norm"``  x·w/‖w‖     P                     s·ψ(P/s)
g = cos, no φ, ``"norms"``         x·w         P                     s·ψ(P/s)
any other                          cos θ       s·φ(P)                s·ψ(P)
=================================  ==========  ====================  ==============

**The gradient of P.** If the margin and the comparison provide their slopes, :func:`_compute_closed_form` computes D = ∂L/∂P together
with the loss, without a graph. At the target class, D is the comparison's slope times the slope of the target's logit; at
the other classes, it is the comparison's slope times that of φ. If a slope has no closed form, :func:`attach_gradient` makes P
differentiable, and autograd differentiates the rest.

**The gradients of x and w.** Both ways end in :func:`propagate`. With S = x·wᵀ and P = S·r·q, where r and q are the factors of the rows
of x and w (1/‖x‖, 1/‖w‖ or 1), these are two matrix products, and a scaled copy of x and of w that is subtracted if r or q
depends on their lengths:

.. math:: ∂L/∂x = (D r q) w − x \, Σ_j D_{ij} P_{ij}/‖x‖², \quad ∂L/∂w = (D r q)^T x − w \, Σ_i D_{ij} P_{ij}/‖w‖²

**Why.** Normalized copies of x and w are never built. The number of calls limits a head of ten classes, and this method needs
half as many. Tensors (n, c) are stored with the samples contiguous: on a CPU, the product w·xᵀ of few classes takes half
the time of x·wᵀ, and sums over classes use vector instructions. For a second derivative, plain autograd computes the
losses again.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from ...geometry import accumulation_dtype, matmul, norm, normalize
from ..margins.margin import AngularScore, Context, Margin, Strength, draw_noise, evaluate_with_slope
from .problem import LossProblem, Scale, ScoreFunction, is_plain, select_angular
from .scores import (
    MAX_NORM,
    MIN_NORM,
    Batch,
    Target,
    TargetProducts,
    add_penalty,
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
"""A function of features, weight and bias that computes the losses again with plain autograd, for a second derivative."""


class ProductForm(NamedTuple):
    """How products are normalized: divided by ‖x‖ if ``by_x``, by ‖w‖ if ``by_weight``, and multiplied by ``scale``.

    A scale needs ``by_x``, and sub-centers need ``by_weight``. ``are_logits`` says that the products of the other classes are
    their logits, to which only the bias is added; otherwise the products are cosines.
    """

    sub_centers: int = 1
    by_x: bool = True
    by_weight: bool = True
    scale: float = 1.0
    are_logits: bool = False


class RawProducts(NamedTuple):
    """The products of a batch with all rows of a weight, without a graph.

    Attributes:
        raw: x·w, divided by ‖w‖ if ``by_weight``; the largest one per class.
        nearest: Index of the sub-center with the largest product, in the same dtype; None for one center per class.
        times: scale/‖x‖, the factor still to be applied to ``raw``; None without ``by_x``.
        norms: ‖x‖ of each sample.
        lengths: ‖w‖ of each row.
    """

    raw: Float[Tensor, "n c"]
    nearest: Float[Tensor, "n c"] | None
    times: Float[Tensor, "n"] | None
    norms: Float[Tensor, "n"]
    lengths: Float[Tensor, "ck"]


class Products(NamedTuple):
    """The products of a batch with all rows of a weight, with gradients.

    Attributes:
        others: The largest product per class. At each sample's target class it has no gradient.
        own: The product of each sample with its target class.
        norms: ‖x‖ of each sample.
        lengths: ‖w‖ of each row.
    """

    others: Float[Tensor, "n c"]
    own: Float[Tensor, "n"]
    norms: Float[Tensor, "n"]
    lengths: Float[Tensor, "ck"]


class _Settings(NamedTuple):
    """What the losses depend on besides features, weight and bias. ``g`` belongs to the target classes."""

    problem: LossProblem
    form: ProductForm
    noise: Mapping[Strength, Tensor] | None
    g: AngularScore


def compute_few_classes(problem: LossProblem, chunk: int = 0) -> Float[Tensor, "n"] | None:
    """Return the loss of each sample, or None if a length is outside of [``MIN_NORM``, ``MAX_NORM``]; a LossMethod."""
    scores, features, weight, bias = problem.scores, problem.batch.features, problem.weight, problem.bias
    dtype = accumulation_dtype(features, weight)
    x, weight, bias = features.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    if isinstance(problem.scale, Tensor) and problem.scale.numel() == 1 and not problem.scale.requires_grad:
        problem = problem._replace(scale=problem.scale.item())  # a number allows the closed form
    form = choose_form(scores, problem.scale)
    products = multiply(x, weight, form)
    if products is None:
        return None
    noise = draw_noise(scores.margin, products.norms)
    settings = _Settings(problem, form, noise, select_angular(scores, problem.labels))
    loss = _compute_closed_form(settings, products, x, weight, bias)
    return _compute_by_autograd(settings, products, x, weight, bias) if loss is None else loss


def choose_form(scores: ScoreFunction, scale: Scale) -> ProductForm:
    """Choose the products by the table in the module's docstring.

    A scale in a tensor may need a gradient of its own, so it is applied to cosines, as for a margin on the other classes.

    >>> from hypersphere.angular import Cosine
    >>> choose_form(ScoreFunction(Margin(), Cosine(), num_classes=10), "feature_norm")
    ProductForm(sub_centers=1, by_x=False, by_weight=True, scale=1.0, are_logits=True)
    """
    if not is_plain(scores) or isinstance(scale, Tensor):
        return ProductForm(scores.sub_centers)
    if isinstance(scale, str):
        return ProductForm(scores.sub_centers, by_x=False, by_weight=not scores.weight_norm, are_logits=True)
    return ProductForm(scores.sub_centers, scale=float(scale), are_logits=True)


def multiply(x: Float[Tensor, "n d"], weight: Float[Tensor, "ck d"], form: ProductForm) -> RawProducts | None:
    r"""Compute the products without a graph, or return None if a length is outside of [``MIN_NORM``, ``MAX_NORM``].

    In this range no square overflows, and no gradient needs a bound.

    >>> multiply(torch.tensor([[3.0, 4.0]]), torch.eye(2), ProductForm()).times
    tensor([0.2000])
    >>> multiply(torch.zeros(1, 2), torch.eye(2), ProductForm()) is None
    True
    """
    if not x.shape[0]:
        return None
    with torch.no_grad():
        norms, lengths = torch.linalg.vector_norm(x, dim=1), torch.linalg.vector_norm(weight, dim=1)
        for values in (norms, lengths):
            smallest, largest = torch.aminmax(values)
            if not (smallest.item() >= MIN_NORM and largest.item() <= MAX_NORM):
                return None
        products = matmul(weight, x.T)
        if form.by_weight:
            products.div_(lengths.unsqueeze(1))
        several = form.sub_centers > 1
        raw, nearest = find_nearest_centers(products.T, form.sub_centers) if several else (products.T, None)
        times = norms.reciprocal().mul_(form.scale) if form.by_x else None
        return RawProducts(raw, nearest, times, norms, lengths)


def scale_products(products: RawProducts) -> Float[Tensor, "n c"]:
    """Return P in a new tensor: ``raw`` times its factors."""
    return products.raw.clone() if products.times is None else products.raw * products.times.unsqueeze(1)


def propagate(
    x: Tensor,
    weight: Tensor,
    products: RawProducts,
    form: ProductForm,
    d: Float[Tensor, "n c"],
    d_norms: Float[Tensor, "n"] | None,
    d_lengths: Float[Tensor, "ck"] | None,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, Tensor | None]:
    """Return ∂L/∂x and ∂L/∂w as far as ``needs`` asks for them, from ``d`` = ∂L/∂raw, ∂L/∂‖x‖ and ∂L/∂‖w‖.

    The formula is in the module's docstring. ``d`` is overwritten.
    """
    k, sum_x, sum_w = form.sub_centers, None, None
    terms = d * products.raw if form.by_x or (form.by_weight and k == 1) else None
    if needs[0] and form.by_x and terms is not None:
        sum_x = terms.sum(1)
    d_rows = d if products.nearest is None else scatter_to_centers(d, products.nearest, k)
    if needs[1] and form.by_weight:
        sum_w = terms.sum(0) if terms is not None and k == 1 else sum_by_center(d_rows, products.raw, k)
    if form.by_weight:
        d_rows.div_(products.lengths)
    d_x = _multiply_and_project(x, products.norms, sum_x, d_norms, d_rows, weight) if needs[0] else None
    d_weight = _multiply_and_project(weight, products.lengths, sum_w, d_lengths, d_rows.T, x) if needs[1] else None
    return d_x, d_weight


def _multiply_and_project(
    rows: Tensor, lengths: Tensor, inner: Tensor | None, d_length: Tensor | None, left: Tensor, right: Tensor
) -> Tensor:
    """Return left·right + rows·(∂L/∂length/length − inner/length²), where None stands for a term that is 0.

    The second term is the gradient that the rows get through their lengths. ``inner`` is Σ D·P, and is overwritten.
    """
    if inner is None and d_length is None:
        return matmul(left, right)
    if inner is None:
        assert d_length is not None
        return (rows * (d_length / lengths).unsqueeze(1)).addmm_(left, right)
    factor = inner.div_(lengths) if d_length is None else inner.div_(lengths).sub_(d_length)
    # Compute the product first: its result is still in the cache when the scaled rows are subtracted.
    return matmul(left, right).addcmul_(rows, factor.div_(lengths).unsqueeze(1), value=-1)


def _build_batch(settings: _Settings, norms: Tensor) -> Batch:
    """Return the inputs of the margin's hooks; ``norms`` may have a graph."""
    problem, scale = settings.problem, settings.problem.scale
    if isinstance(scale, str):
        scale = norms
    elif isinstance(scale, Tensor):
        scale = expand_scale(norms, scale)
    return Batch(norms, scale, problem.labels, problem.ignored, settings.noise)


class _TargetSlopes(NamedTuple):
    """The target's logit t without its bias, its cosine if a hook uses it, ∂t/∂P (None for 1) and ∂t/∂s (None for 0)."""

    logit: Tensor
    cos: Tensor | None = None
    by_product: Tensor | float | None = None
    by_scale: Tensor | None = None


class _LossSlopes(NamedTuple):
    """What the backward pass of the closed form needs besides the products.

    Attributes:
        products: ∂L/∂P.
        logit: ∂L/∂t.
        shared_bias: ∂L/∂b of one bias for all classes; None for one bias per class, or none.
        scale: ∂L/∂s if the scale depends on the lengths of features.
        length: ‖w‖ of the target class if the scale includes it.
    """

    products: Float[Tensor, "n c"]
    logit: Float[Tensor, "n"]
    shared_bias: Float[Tensor, "n"] | None
    scale: Float[Tensor, "n"] | None
    length: Float[Tensor, "n"] | None


def _compute_closed_form(
    settings: _Settings, raw_products: RawProducts, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Float[Tensor, "n"] | None:
    """Return the losses with closed-form gradients of x, w and b.

    Return None if a slope has no closed form or another input may need a gradient.
    """
    problem, form = settings.problem, settings.form
    scores, comparison, labels, annealing = problem.scores, problem.comparison, problem.labels, problem.annealing
    batch = _build_batch(settings, raw_products.norms)
    has_class_bias = bias is not None and bias.numel() > 1
    if isinstance(annealing, Tensor) and annealing.requires_grad:
        return None
    if not form.are_logits and (has_class_bias or isinstance(batch.scale, Tensor)):
        return None
    # A hook may update running statistics. A second derivative calls the hooks again with these copies. The search for buffers
    # is slow, so skip it if there can be none.
    margin = scores.margin
    buffers = dict(margin.named_buffers()) if margin._buffers or margin._modules else {}
    copies = {f"margin.{name}": buffer.clone() for name, buffer in buffers.items()}
    is_differentiable = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias))
    column = labels.unsqueeze(1)
    with torch.no_grad():
        products = scale_products(raw_products)
        length = raw_products.lengths[labels] if scores.weight_norm else None
        target = _differentiate_target(settings, products.gather(1, column).squeeze(1), length, batch)
        others = None if target is None else _differentiate_others(settings, products, target, batch)
        if target is None or others is None:
            return None
        (z, slope), logit = others, target.logit
        if bias is not None:
            z, logit = z + bias, logit + (bias[labels] if has_class_bias else bias)
        z.scatter_(1, column, -torch.inf)
        summary, slope_by = comparison.of_all_with_slope(z)
        loss, by_logit, by_summary = comparison.loss_with_slopes(logit, summary, scores.num_classes)
        if not is_differentiable:
            return loss
        d = slope_by(by_summary)
        d_shared = None if bias is None or has_class_bias else d.scatter_(1, column, by_logit.unsqueeze(1)).sum(1)
        d = d if slope is None else d.mul_(slope)
        d_target = by_logit if target.by_product is None else by_logit * target.by_product
        d.scatter_(1, column, d_target.unsqueeze(1))
        d_scale = None if target.by_scale is None else by_logit * target.by_scale
    slopes = _LossSlopes(d, by_logit, d_shared, d_scale, length)
    recompute = functools.partial(_recompute, settings, copies)
    result: Tensor = _ClosedForm.apply(x, weight, bias, labels, form, raw_products, slopes, loss, recompute)
    return result


def _differentiate_target(
    settings: _Settings, product: Tensor, length: Tensor | None, batch: Batch
) -> _TargetSlopes | None:
    """Return the target's logit and its slopes from the target's product, or None if there is no closed form."""
    scores, annealing, are_logits = settings.problem.scores, settings.problem.annealing, settings.form.are_logits
    margin, g = scores.margin, settings.g
    has_target_hook = type(margin).target is not Margin.target
    has_penalty = type(margin).penalty is not Margin.penalty
    if are_logits and not has_target_hook and not has_penalty:
        return _TargetSlopes(product)
    scale = batch.scale if length is None else batch.scale * length
    cos = (product / scale if are_logits else product).clamp_(-1, 1)
    context = Context(g, batch.norms, batch.labels, batch.ignored, noise=batch.noise)
    if has_penalty and margin.penalty(context) is not None:
        return None
    score: tuple[Tensor, Tensor | float] | None = (cos, 1.0) if are_logits else evaluate_with_slope(g, cos)
    psi = margin.target_with_slope(cos, context) if has_target_hook and score is not None else score
    if score is None or psi is None:
        return None
    (value, slope), effect = psi, psi[0] - score[0]
    if scores.detached or isinstance(annealing, Tensor) or annealing:
        effect = effect / (1 + annealing)
        value = score[0] + effect
        slope = score[1] if scores.detached else score[1] + (slope - score[1]) / (1 + annealing)
    if not are_logits:
        return _TargetSlopes(value * scale, cos, slope * scale)
    # t = s·ψ(P/s), computed as P plus the margin's effect, so that t equals P exactly if the margin has no effect.
    by_scale = value - cos * slope if isinstance(scale, Tensor) else None
    return _TargetSlopes(product + effect * scale, cos, slope, by_scale)


def _differentiate_others(
    settings: _Settings, products: Tensor, target: _TargetSlopes, batch: Batch
) -> tuple[Tensor, Tensor | None] | None:
    """Return the other classes' logits z without biases, possibly in the memory of ``products``, and ∂z/∂P, None for 1."""
    if settings.form.are_logits:
        return products, None
    scores = settings.problem.scores
    hardest = find_hardest(scores, products, batch.labels)
    phi = score_cosines_with_slope(scores, slice(None), products, batch, target.cos, hardest)
    return None if phi is None else (phi[0] * batch.scale, phi[1].mul_(batch.scale))


class _ClosedForm(torch.autograd.Function):
    """Losses whose derivatives were computed with them: the backward pass scales D and propagates it to x, w and b."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        form: ProductForm,
        raw_products: RawProducts,
        slopes: _LossSlopes,
        loss: Tensor,
        recompute: Recompute,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias, labels, *raw_products, *slopes)
        ctx.form, ctx.recompute = form, recompute
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, labels, *saved = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            inputs = [t for t, need in zip((x, weight, bias), needs, strict=True) if need]
            gradients = iter(torch.autograd.grad(ctx.recompute(x, weight, bias), inputs, grad, create_graph=True))
            return (*[next(gradients) if need else None for need in needs], *[None] * 6)
        count = len(RawProducts._fields)
        raw_products, slopes = RawProducts(*saved[:count]), _LossSlopes(*saved[count:])
        d = slopes.products * (grad if raw_products.times is None else grad * raw_products.times).unsqueeze(1)
        d_norms = d_lengths = d_bias = None
        if slopes.scale is not None:
            # The scale is ‖x‖, or the product of ‖x‖ and the length of the target class.
            d_norms = d_scale = grad * slopes.scale
            if slopes.length is not None:
                d_norms = d_scale * slopes.length
                d_lengths = torch.zeros_like(raw_products.lengths).index_add_(0, labels, d_scale * raw_products.norms)
        if needs[2] and slopes.shared_bias is not None:
            d_bias = torch.dot(grad, slopes.shared_bias).view_as(bias)
        elif needs[2]:
            column = labels.unsqueeze(1)
            d_logits = slopes.products.scatter(1, column, slopes.logit.unsqueeze(1))
            d_bias = torch.mv(d_logits.T, grad)
        return (*propagate(x, weight, raw_products, ctx.form, d, d_norms, d_lengths, needs[:2]), d_bias, *[None] * 6)


def _compute_by_autograd(
    settings: _Settings, raw_products: RawProducts, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Float[Tensor, "n"]:
    """Return the losses, differentiated by autograd from the products on."""
    problem, form, g = settings.problem, settings.form, settings.g
    labels, scores = problem.labels, problem.scores
    products = attach_gradient(x, weight, labels, raw_products, form)
    batch = _build_batch(settings, products.norms)
    length = products.lengths[labels] if scores.weight_norm else None
    if form.are_logits:
        scale = batch.scale if length is None else batch.scale * length
        target = Target(products.own, (products.own / scale).clamp(-1, 1), length)
        z = products.others if bias is None else products.others + bias
    else:
        target = compute_target(batch, TargetProducts(None, products.own.clamp(-1, 1), length), g)
        lengths = products.lengths if scores.weight_norm else None
        class_bias = None if bias is None else bias.expand(scores.num_classes)
        hardest = find_hardest(scores, products.others, labels)
        z = score_cosines(scores, slice(None), products.others, lengths, class_bias, batch, target.cos, hardest)
    logit = compute_target_logit(scores, batch, target, g, problem.annealing)
    if bias is not None:
        logit = logit + (bias[labels] if bias.numel() > 1 else bias)
    summary = problem.comparison.of_all(z.scatter(1, labels.unsqueeze(1), -torch.inf))
    loss = problem.comparison.loss(logit, summary, scores.num_classes)
    return add_penalty(scores, loss, batch, g, target.cos)


def attach_gradient(
    x: Float[Tensor, "n d"],
    weight: Float[Tensor, "ck d"],
    labels: Int[Tensor, "n"],
    products: RawProducts,
    form: ProductForm,
) -> Products:
    r"""Attach gradients to the result of :func:`multiply`.

    >>> x, w = torch.tensor([[3.0, 4.0]]), torch.eye(2)
    >>> products = attach_gradient(x, w, torch.tensor([1]), multiply(x, w, ProductForm()), ProductForm())
    >>> products.others, products.own, products.norms
    (tensor([[0.6000, 0.8000]]), tensor([0.8000]), tensor([5.]))
    """
    return Products(*_AttachGradient.apply(x, weight, labels.unsqueeze(1), form, products))


class _AttachGradient(torch.autograd.Function):
    """Products that were computed before, with :func:`propagate` as their derivative."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, column: Tensor, form: ProductForm, raw_products: RawProducts
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        others = scale_products(raw_products)
        ctx.save_for_backward(x, weight, column, *raw_products)
        ctx.form = form
        ctx.set_materialize_grads(False)
        return others, others.gather(1, column).squeeze(1), raw_products.norms, raw_products.lengths

    @staticmethod
    def backward(
        ctx: Any, d_others: Tensor | None, d_own: Tensor | None, d_norms: Tensor | None, d_lengths: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, weight, column, *saved = ctx.saved_tensors
        raw_products, form, needs = RawProducts(*saved), ctx.form, ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():
            grad_outputs = (d_others, d_own, d_norms, d_lengths)
            return (*_differentiate_plainly(x, weight, column, form, grad_outputs, needs), *[None] * 3)
        d = torch.zeros_like(raw_products.raw) if d_others is None else d_others
        # The product with the target class is differentiated as the output `own`.
        d = d.scatter(1, column, 0.0) if d_own is None else d.scatter(1, column, d_own.unsqueeze(1))
        d = d if raw_products.times is None else d.mul_(raw_products.times.unsqueeze(1))
        return (*propagate(x, weight, raw_products, form, d, d_norms, d_lengths, needs), None, None, None)


def _differentiate_plainly(
    x: Tensor,
    weight: Tensor,
    column: Tensor,
    form: ProductForm,
    grad_outputs: tuple[Tensor | None, ...],
    needs: tuple[bool, ...],
) -> list[Tensor | None]:
    """Return the gradients of x and w by plain autograd, with a graph for a second derivative."""
    rows = normalize(weight) if form.by_weight else weight
    products = (form.scale * normalize(x) if form.by_x else x) @ rows.T
    products = products if form.sub_centers == 1 else products.unflatten(1, (-1, form.sub_centers)).amax(-1)
    others = products.scatter(1, column, products.detach().gather(1, column))
    outputs = (others, products.gather(1, column).squeeze(1), norm(x), norm(weight))
    pairs = [(output, d) for output, d in zip(outputs, grad_outputs, strict=True) if d is not None]
    inputs = [t for t, need in zip((x, weight), needs, strict=True) if need]
    gradients = iter(
        torch.autograd.grad([o for o, _ in pairs], inputs, [d for _, d in pairs], create_graph=True, allow_unused=True)
    )
    return [next(gradients) if need else None for need in needs]


def _recompute(
    settings: _Settings, buffers: Mapping[str, Tensor], x: Tensor, weight: Tensor, bias: Tensor | None
) -> Float[Tensor, "n"]:
    """Compute the losses again by autograd, with copies of these buffers in the margin."""
    copies = {name: buffer.clone() for name, buffer in buffers.items()}
    result: Tensor = functional_call(_AutogradLosses(settings), copies, (x, weight, bias))
    return result


class _AutogradLosses(nn.Module):
    """The losses as a module that contains the margin, so that ``functional_call`` can replace the margin's buffers."""

    def __init__(self, settings: _Settings):
        super().__init__()
        self.margin, self.settings = settings.problem.scores.margin, settings

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raw_products = multiply(x, weight, self.settings.form)
        assert raw_products is not None
        return _compute_by_autograd(self.settings, raw_products, x, weight, bias)
