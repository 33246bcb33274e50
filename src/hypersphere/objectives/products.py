r"""A head of few classes: the products of a batch with every row at once, and their derivative by hand.

With S = x·wᵀ, of which a head wants S, S/‖w‖ or S/(‖x‖‖w‖), the way back from D = ∂L/∂products is two matrix products of
D·r·q (r and q are the inverse lengths that divided) and one scaled copy each of x and w:

.. math:: ∂L/∂x = (D r q) w − x \, Σ_j D_{ij} P_{ij}/‖x‖², \quad ∂L/∂w = (D r q)^T x − w \, Σ_i D_{ij} P_{ij}/‖w‖²

Normalized copies of x and w are never built. Everything after the products is plain autograd, on tensors of the batch's
length where the other classes are plain cosines. A second derivative goes through the same function written plainly.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import norm, normalize
from .cosines import spread
from .scores import MIN_NORM

LONGEST = 1e15
"""Squares of longer vectors may leave the range of float32."""


class Products(NamedTuple):
    """What a batch and all rows of a weight have in common, with gradients.

    Attributes:
        others: The products, the largest over the sub-centres of a class; −∞ at each sample's own class if masked.
        own: Those of each sample with its own class.
        norms: ‖x‖.
        lengths: ‖w‖ of every row.
    """

    others: Float[Tensor, "n c"]
    own: Float[Tensor, "n"]
    norms: Float[Tensor, "n"]
    lengths: Float[Tensor, "ck"]


def products(
    x: Float[Tensor, "n d"],
    weight: Float[Tensor, "ck d"],
    labels: Int[Tensor, "n"],
    *,
    sub_centers: int = 1,
    by_x: bool = True,
    by_weight: bool = True,
    scale: float = 1.0,
    masked: bool = False,
) -> Products | None:
    r"""scale·x·w, divided by ‖x‖ where ``by_x`` and by ‖w‖ where ``by_weight``; None if a length is unusual.

    Only ``by_x`` goes with a scale and only ``by_weight`` with sub-centres. Lengths from ``MIN_NORM`` to ``LONGEST``
    are usual: no square overflows and no gradient needs a bound.

    >>> found = products(torch.tensor([[3.0, 4.0]]), torch.eye(2), torch.tensor([1]))
    >>> found.others, found.own, found.norms
    (tensor([[0.6000, 0.8000]]), tensor([0.8000]), tensor([5.]))
    >>> products(torch.zeros(1, 2), torch.eye(2), torch.tensor([1])) is None
    True
    """
    if not len(x):
        return None
    with torch.no_grad():
        norms, lengths = torch.linalg.vector_norm(x, dim=1), torch.linalg.vector_norm(weight, dim=1)
        for measured in (norms, lengths):
            least, most = torch.aminmax(measured)
            if not (least.item() >= MIN_NORM and most.item() <= LONGEST):
                return None
    how = _How(sub_centers, by_x, by_weight, scale, masked)
    return Products(*_Products.apply(x, weight, labels.unsqueeze(1), how, (norms, lengths)))


class _How(NamedTuple):
    sub_centers: int
    by_x: bool
    by_weight: bool
    scale: float
    masked: bool


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, column: Tensor, how: _How, measured: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        norms, lengths = measured
        over_x, over_w = norms.reciprocal(), lengths.reciprocal()
        found, nearest = _largest(x, weight, over_w if how.by_weight else None, how.sub_centers)
        if how.by_x:
            found.mul_((over_x if how.scale == 1 else over_x * how.scale).unsqueeze(1))
        own = found.gather(1, column).squeeze(1)
        ctx.save_for_backward(x, weight, column, found, nearest, over_x, over_w)
        ctx.how = how
        ctx.set_materialize_grads(False)
        others = found.scatter(1, column, -torch.inf) if how.masked else found.view_as(found)
        return others, own, norms, lengths

    @staticmethod
    def backward(
        ctx: Any, d_others: Tensor | None, d_own: Tensor | None, d_norms: Tensor | None, d_lengths: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, weight, column, found, nearest, over_x, over_w = ctx.saved_tensors
        how = ctx.how
        if torch.is_grad_enabled():
            arrived = (d_others, d_own, d_norms, d_lengths)
            return (*_backward_plainly(x, weight, column, how, arrived, ctx.needs_input_grad[:2]), *[None] * 3)
        d = _with_own(found, d_others, d_own, column)
        along = d * found if how.by_x or how.by_weight else None
        d_x = d_weight = None
        if ctx.needs_input_grad[0]:
            d_x = _radial(x, over_x, along.sum(1) if along is not None and how.by_x else None, d_norms)
        if ctx.needs_input_grad[1]:
            sums = None
            if along is not None and how.by_weight:
                sums = (along if nearest is None else spread(along, nearest, how.sub_centers)).sum(0)
            d_weight = _radial(weight, over_w, sums, d_lengths)
        if how.by_x:
            d.mul_((over_x if how.scale == 1 else over_x * how.scale).unsqueeze(1))
        d = d if nearest is None else spread(d, nearest, how.sub_centers)
        d = d.mul_(over_w) if how.by_weight else d
        d_x = None if d_x is None else d_x.addmm_(d, weight)
        d_weight = None if d_weight is None else d_weight.addmm_(d.T, x)
        return d_x, d_weight, None, None, None


def _radial(rows: Tensor, over: Tensor, along: Tensor | None, d_length: Tensor | None) -> Tensor:
    """What reaches rows along themselves: −Σ D·P/‖x‖² of the division by their length, and that of the length itself."""
    if along is None:
        return torch.zeros_like(rows) if d_length is None else rows * (d_length * over).unsqueeze(1)
    factor = along.mul_(over) if d_length is None else along.mul_(over).sub_(d_length)
    return rows * factor.mul_(over).neg_().unsqueeze(1)


def _with_own(found: Tensor, d_others: Tensor | None, d_own: Tensor | None, column: Tensor) -> Tensor:
    """∂L/∂products: that of the others, and at each sample's own class that of its own product, in a new tensor."""
    if d_others is None:
        d_others = torch.zeros_like(found)
    return d_others.scatter(1, column, 0.0) if d_own is None else d_others.scatter(1, column, d_own.unsqueeze(1))


def _largest(x: Tensor, weight: Tensor, over_w: Tensor | None, k: int) -> tuple[Tensor, Tensor | None]:
    """x·wᵀ (over ‖w‖), a new tensor, the largest over each class's k rows, and which of them that was."""
    if k == 1:
        found = torch.mm(x, weight.T)
        return (found if over_w is None else found.mul_(over_w)), None
    assert over_w is not None
    rows, over = weight.unflatten(0, (-1, k)), over_w.unflatten(0, (-1, k))
    found = torch.mm(x, rows[:, 0].T).mul_(over[:, 0])
    nearest = torch.zeros(found.shape, dtype=torch.int64, device=x.device)
    for centre in range(1, k):
        other = torch.mm(x, rows[:, centre].T).mul_(over[:, centre])
        nearest.masked_fill_(other > found, centre)
        torch.maximum(found, other, out=found)
    return found, nearest


def _backward_plainly(
    x: Tensor, weight: Tensor, column: Tensor, how: _How, arrived: tuple[Tensor | None, ...], needs: tuple[bool, ...]
) -> list[Tensor | None]:
    """The same gradients with a graph of their own, for a second derivative."""
    rows = normalize(weight) if how.by_weight else weight
    found = (how.scale * normalize(x) if how.by_x else x) @ rows.T
    found = found if how.sub_centers == 1 else found.unflatten(1, (-1, how.sub_centers)).amax(-1)
    others = found.scatter(1, column, -torch.inf if how.masked else found.detach().gather(1, column))
    outputs = (others, found.gather(1, column).squeeze(1), norm(x), norm(weight))
    known = [(output, d) for output, d in zip(outputs, arrived, strict=True) if d is not None]
    wanted = [t for t, need in zip((x, weight), needs, strict=True) if need]
    by = torch.autograd.grad([o for o, _ in known], wanted, [d for _, d in known], create_graph=True, allow_unused=True)
    results = iter(by)
    return [next(results) if need else None for need in needs]
