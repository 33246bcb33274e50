r"""A head of few classes: the products of a batch with every row at once, and their derivative by hand.

With S = x·wᵀ, of which a head wants P = S, S/‖w‖ or S/(‖x‖‖w‖), the way back from D = ∂L/∂P is two matrix products of
D·r·q (r and q are the inverse lengths that divided) and one scaled copy each of x and w:

.. math:: ∂L/∂x = (D r q) w − x \, Σ_j D_{ij} P_{ij}/‖x‖², \quad ∂L/∂w = (D r q)^T x − w \, Σ_i D_{ij} P_{ij}/‖w‖²

Normalized copies of x and w are never built. The memory of every (n, c) tensor here runs over the samples first: on a CPU
the product w·xᵀ of few classes takes half the time of x·wᵀ, and sums over classes go along the vector units.
:func:`pull` is the way back. Two autograd functions end in it: :func:`products`, after which everything is plain autograd,
and the one of :mod:`hypersphere.objectives.closed`, which holds the whole loss. A second derivative goes through the
same function written plainly.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import norm, normalize
from .cosines import nearest_of, spread, sums_of
from .scores import LONGEST, MIN_NORM


class How(NamedTuple):
    """What divides the products: ‖x‖ where ``by_x``, ‖w‖ where ``by_weight``; and a scale, which needs ``by_x``.

    Only ``by_weight`` goes with sub-centres. ``masked`` puts −∞ at each sample's own class.
    """

    sub_centers: int = 1
    by_x: bool = True
    by_weight: bool = True
    scale: float = 1.0
    masked: bool = False


class Found(NamedTuple):
    """What a batch and all rows of a weight have in common, without a graph.

    Attributes:
        raw: x·w, over ‖w‖ where that divides, the largest over the sub-centres of a class.
        nearest: Which sub-centre that was, as numbers of the same dtype; None for one centre.
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
        others: The products, the largest over the sub-centres of a class; −∞ at each sample's own class if masked.
        own: Those of each sample with its own class.
        norms: ‖x‖.
        lengths: ‖w‖ of every row.
    """

    others: Float[Tensor, "n c"]
    own: Float[Tensor, "n"]
    norms: Float[Tensor, "n"]
    lengths: Float[Tensor, "ck"]


def multiply(x: Float[Tensor, "n d"], weight: Float[Tensor, "ck d"], how: How) -> Found | None:
    r"""The products without a graph; None if a length is unusual.

    Lengths from ``MIN_NORM`` to ``LONGEST`` are usual: no square overflows and no gradient needs a bound.

    >>> multiply(torch.tensor([[3.0, 4.0]]), torch.eye(2), How()).times
    tensor([0.2000])
    >>> multiply(torch.zeros(1, 2), torch.eye(2), How()) is None
    True
    """
    if not x.shape[0]:
        return None
    with torch.no_grad():
        norms, lengths = torch.linalg.vector_norm(x, dim=1), torch.linalg.vector_norm(weight, dim=1)
        for measured in (norms, lengths):
            least, most = torch.aminmax(measured)
            if not (least.item() >= MIN_NORM and most.item() <= LONGEST):
                return None
        each = torch.mm(weight, x.T)
        if how.by_weight:
            each.div_(lengths.unsqueeze(1))
        raw, nearest = nearest_of(each.T, how.sub_centers)
        times = norms.reciprocal().mul_(how.scale) if how.by_x else None
        return Found(raw, nearest, times, norms, lengths)


def scaled(found: Found) -> Float[Tensor, "n c"]:
    """The products that a head wants, always a new tensor."""
    return found.raw.clone() if found.times is None else found.raw * found.times.unsqueeze(1)


def products(
    x: Float[Tensor, "n d"], weight: Float[Tensor, "ck d"], labels: Int[Tensor, "n"], found: Found, how: How
) -> Products:
    r"""What was found by :func:`multiply`, with its gradients.

    >>> x, w = torch.tensor([[3.0, 4.0]]), torch.eye(2)
    >>> met = products(x, w, torch.tensor([1]), multiply(x, w, How()), How())
    >>> met.others, met.own, met.norms
    (tensor([[0.6000, 0.8000]]), tensor([0.8000]), tensor([5.]))
    """
    return Products(*_Products.apply(x, weight, labels.unsqueeze(1), how, found))


def pull(
    x: Tensor,
    weight: Tensor,
    found: Found,
    how: How,
    d: Float[Tensor, "n c"],
    d_norms: Float[Tensor, "n"] | None,
    d_lengths: Float[Tensor, "ck"] | None,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, Tensor | None]:
    """∂L/∂x and ∂L/∂w, those that are needed, from ∂L/∂raw, ∂L/∂‖x‖ and ∂L/∂‖w‖; ``d`` is used up."""
    k, inner_x, inner_w = how.sub_centers, None, None
    along = d * found.raw if how.by_x or (how.by_weight and k == 1) else None
    if needs[0] and how.by_x and along is not None:
        inner_x = along.sum(1)
    each = d if found.nearest is None else spread(d, found.nearest, k)
    if needs[1] and how.by_weight:
        inner_w = along.sum(0) if along is not None and k == 1 else sums_of(each, found.raw, k)
    if how.by_weight:
        each.div_(found.lengths)
    d_x = _added(x, found.norms, inner_x, d_norms, each, weight) if needs[0] else None
    d_weight = _added(weight, found.lengths, inner_w, d_lengths, each.T, x) if needs[1] else None
    return d_x, d_weight


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, column: Tensor, how: How, found: Found
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        others = scaled(found)
        own = others.gather(1, column).squeeze(1)
        ctx.save_for_backward(x, weight, column, *found)
        ctx.how = how
        ctx.set_materialize_grads(False)
        return others.scatter_(1, column, -torch.inf) if how.masked else others, own, found.norms, found.lengths

    @staticmethod
    def backward(
        ctx: Any, d_others: Tensor | None, d_own: Tensor | None, d_norms: Tensor | None, d_lengths: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, weight, column, *rest = ctx.saved_tensors
        found, how, needs = Found(*rest), ctx.how, ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():
            arrived = (d_others, d_own, d_norms, d_lengths)
            return (*_backward_plainly(x, weight, column, how, arrived, needs), *[None] * 3)
        d = _with_own(found.raw, d_others, d_own, column)
        d = d if found.times is None else d.mul_(found.times.unsqueeze(1))
        return (*pull(x, weight, found, how, d, d_norms, d_lengths, needs), None, None, None)


def _added(
    rows: Tensor, lengths: Tensor, along: Tensor | None, d_length: Tensor | None, left: Tensor, right: Tensor
) -> Tensor:
    """A product, and what reaches rows along themselves: −Σ D·P/‖x‖² of the division by their length, and that of the
    length itself."""
    if along is None and d_length is None:
        return torch.mm(left, right)
    if along is None:
        assert d_length is not None
        return (rows * (d_length / lengths).unsqueeze(1)).addmm_(left, right)
    factor = along.div_(lengths) if d_length is None else along.div_(lengths).sub_(d_length)
    # The product first: what it wrote is still at hand when the rows are taken off it.
    return torch.mm(left, right).addcmul_(rows, factor.div_(lengths).unsqueeze(1), value=-1)


def _with_own(like: Tensor, d_others: Tensor | None, d_own: Tensor | None, column: Tensor) -> Tensor:
    """∂L/∂products: that of the others, and at each sample's own class that of its own product, in a new tensor."""
    if d_others is None:
        d_others = torch.zeros_like(like)
    return d_others.scatter(1, column, 0.0) if d_own is None else d_others.scatter(1, column, d_own.unsqueeze(1))


def _backward_plainly(
    x: Tensor, weight: Tensor, column: Tensor, how: How, arrived: tuple[Tensor | None, ...], needs: tuple[bool, ...]
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
