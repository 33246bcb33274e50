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
    masked: bool = False,
) -> Products | None:
    r"""x·w, divided by ‖x‖ where ``by_x`` and by ‖w‖ where ``by_weight``; None if a length is out of the usual range.

    Lengths from ``MIN_NORM`` to ``LONGEST`` are usual: no square overflows and no gradient needs a bound.

    >>> found = products(torch.tensor([[3.0, 4.0]]), torch.eye(2), torch.tensor([1]))
    >>> found.others, found.own, found.norms
    (tensor([[0.6000, 0.8000]]), tensor([0.8000]), tensor([5.]))
    >>> products(torch.zeros(1, 2), torch.eye(2), torch.tensor([1])) is None
    True
    """
    if not len(x) or _is_transformed():
        return None
    with torch.no_grad():
        norms, lengths = torch.linalg.vector_norm(x, dim=1), torch.linalg.vector_norm(weight, dim=1)
        for measured in (norms, lengths):
            least, most = torch.aminmax(measured)
            if not (least.item() >= MIN_NORM and most.item() <= LONGEST):
                return None
    how = _How(sub_centers, by_x, by_weight, masked)
    return Products(*_Products.apply(x, weight, labels.unsqueeze(1), norms, lengths, how))


class _How(NamedTuple):
    sub_centers: int
    by_x: bool
    by_weight: bool
    masked: bool


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, column: Tensor, norms: Tensor, lengths: Tensor, how: _How
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        over_x, over_w = norms.reciprocal(), lengths.reciprocal()
        found, nearest = _largest(x, weight, over_w if how.by_weight else None, how.sub_centers)
        if how.by_x:
            found.mul_(over_x.unsqueeze(1))
        own = found.gather(1, column).squeeze(1)
        ctx.save_for_backward(x, weight, column, found, nearest, over_x, over_w)
        ctx.how = how
        ctx.set_materialize_grads(False)
        others = found.scatter(1, column, -torch.inf) if how.masked else found.view_as(found)
        return others, own, norms.view_as(norms), lengths.view_as(lengths)

    @staticmethod
    def backward(
        ctx: Any, d_others: Tensor | None, d_own: Tensor | None, d_norms: Tensor | None, d_lengths: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, weight, column, found, nearest, over_x, over_w = ctx.saved_tensors
        how = ctx.how
        arrived = (d_others, d_own, d_norms, d_lengths)
        if torch.is_grad_enabled():
            return (*_backward_plainly(x, weight, column, how, arrived, ctx.needs_input_grad[:2]), *[None] * 4)
        d = _with_own(found, d_others, d_own, column)
        along = d * found
        d_x = d_weight = None
        if ctx.needs_input_grad[0]:
            factor = along.sum(1).mul_(over_x).neg_() if how.by_x else torch.zeros_like(over_x)
            factor = factor if d_norms is None else factor.add_(d_norms)
            d_x = x * factor.mul_(over_x).unsqueeze(1)
        if ctx.needs_input_grad[1]:
            factor = _per_row(along, nearest, how).mul_(over_w).neg_() if how.by_weight else torch.zeros_like(over_w)
            factor = factor if d_lengths is None else factor.add_(d_lengths)
            d_weight = weight * factor.mul_(over_w).unsqueeze(1)
        d = d.mul_(over_x.unsqueeze(1)) if how.by_x else d
        _pull(d, nearest, over_w if how.by_weight else None, x, weight, d_x, d_weight, how.sub_centers)
        return d_x, d_weight, None, None, None, None


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
    nearest = torch.zeros(found.shape, dtype=torch.uint8, device=x.device)
    for centre in range(1, k):
        other = torch.mm(x, rows[:, centre].T).mul_(over[:, centre])
        nearest.masked_fill_(other > found, centre)
        torch.maximum(found, other, out=found)
    return found, nearest


def _per_row(along: Tensor, nearest: Tensor | None, how: _How) -> Tensor:
    """Σ over the batch for every row of the weight."""
    if nearest is None:
        return along.sum(0)
    return torch.stack([along.mul(nearest == k).sum(0) for k in range(how.sub_centers)], 1).flatten()


def _pull(
    d: Tensor,
    nearest: Tensor | None,
    over_w: Tensor | None,
    x: Tensor,
    weight: Tensor,
    d_x: Tensor | None,
    d_weight: Tensor | None,
    k: int,
) -> None:
    """Add D·w to ``d_x`` and Dᵀ·x to ``d_weight``, D over ‖w‖ where it is given and 0 where another centre was nearer."""
    rows = weight.unflatten(0, (-1, k))
    for centre in range(k):
        mine = d if nearest is None else torch.where(nearest == centre, d, 0)
        mine = mine if over_w is None else mine.mul_(over_w.unflatten(0, (-1, k))[:, centre])
        if d_x is not None:
            d_x.addmm_(mine, rows[:, centre])
        if d_weight is not None:
            d_weight.unflatten(0, (-1, k))[:, centre].addmm_(mine.T, x)


def _backward_plainly(
    x: Tensor, weight: Tensor, column: Tensor, how: _How, arrived: tuple[Tensor | None, ...], needs: tuple[bool, ...]
) -> list[Tensor | None]:
    """The same gradients with a graph of their own, for a second derivative."""
    rows = normalize(weight) if how.by_weight else weight
    found = (normalize(x) if how.by_x else x) @ rows.T
    found = found if how.sub_centers == 1 else found.unflatten(1, (-1, how.sub_centers)).amax(-1)
    others = found.scatter(1, column, -torch.inf if how.masked else found.detach().gather(1, column))
    outputs = (others, found.gather(1, column).squeeze(1), norm(x), norm(weight))
    known = [(output, d) for output, d in zip(outputs, arrived, strict=True) if d is not None]
    wanted = [t for t, need in zip((x, weight), needs, strict=True) if need]
    by = torch.autograd.grad([o for o, _ in known], wanted, [d for _, d in known], create_graph=True, allow_unused=True)
    results = iter(by)
    return [next(results) if need else None for need in needs]


def _is_transformed() -> bool:
    """Whether vmap, torch.func.grad or forward-mode differentiation is under way, which look into every operation."""
    forward: int = torch.autograd.forward_ad._current_level
    return torch._C._are_functorch_transforms_active() or forward >= 0
