"""A block of a large head whose other classes are plain cosines: closed forms, in place."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ..geometry import inverse_norm
from .chunked import Block, Gradients, Inputs
from .scores import MIN_NORM


def nearest_of(
    each: Float[Tensor, "n ck"], sub_centers: int
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"] | None]:
    """The largest of each class's products, and which of its centres that was, the first of equals; None for one centre.

    Which one is a number of the products' dtype: on a CPU comparisons that give numbers are many times faster than masks.

    >>> nearest_of(torch.tensor([[1.0, 5.0, 7.0, 7.0]]), 2)
    (tensor([[5., 7.]]), tensor([[1., 0.]]))
    """
    if sub_centers == 1:
        return each, None
    centres = each.T.unflatten(0, (-1, sub_centers))
    best, nearest = torch.maximum(centres[:, 0], centres[:, 1]), torch.empty_like(centres[:, 0])
    torch.gt(centres[:, 1], centres[:, 0], out=nearest)
    for k in range(2, sub_centers):
        nearer = torch.gt(centres[:, k], best, out=torch.empty_like(best))
        torch.maximum(nearest, nearer.mul_(k), out=nearest)
        torch.maximum(best, centres[:, k], out=best)
    return best.T, nearest.T


def spread(d: Float[Tensor, "n c"], nearest: Shaped[Tensor, "n c"], sub_centers: int) -> Float[Tensor, "n ck"]:
    """One number per class at the place of its nearest centre, 0 at the others.

    >>> spread(torch.tensor([[5.0, 7.0]]), torch.tensor([[1, 0]]), 2)
    tensor([[0., 5., 7., 0.]])
    """
    each = d.new_empty(d.shape[1], sub_centers, d.shape[0])
    centre = torch.arange(sub_centers, dtype=d.dtype, device=d.device).view(-1, 1)
    torch.eq(nearest.T.to(d.dtype).unsqueeze(1), centre, out=each).mul_(d.T.unsqueeze(1))
    return each.flatten(0, 1).T


def sums_of(each: Float[Tensor, "n ck"], z: Float[Tensor, "n c"], sub_centers: int) -> Float[Tensor, "ck"]:
    """Σ over the samples of each centre's number times the product of its class.

    >>> sums_of(torch.tensor([[0.0, 5.0, 7.0, 0.0]]), torch.tensor([[2.0, 3.0]]), 2)
    tensor([ 0., 10., 21.,  0.])
    """
    return (each.T.unflatten(0, (-1, sub_centers)) * z.T.unsqueeze(1)).sum(-1).flatten()


class PlainLogits:
    r"""z = a·w/‖w‖ + b (or a·w + b), the largest over sub-centres, and its gradient, for features a = scale·x̂.

    .. math:: ∂z/∂a = w/‖w‖,\quad ∂z/∂w = a/‖w‖ − (z − b)·w/‖w‖²

    so with D = ∂L/∂z the block's gradients are two matrix products of D/‖w‖ and one scaled copy of w. It is a
    :class:`~hypersphere.objectives.chunked.ChunkedLogits` whose batch is a alone.

    Args:
        sub_centers: K rows of the weight per class.
        normalized: Whether the rows are divided by their lengths.
        matmul_dtype: The dtype of the matrix products; None for that of the features.
        bounded: Whether rows shorter than ``MIN_NORM`` get the gradient of one of that length.
    """

    def __init__(self, sub_centers: int, normalized: bool, matmul_dtype: torch.dtype | None, bounded: bool = True):
        self.sub_centers, self.normalized, self.matmul_dtype = sub_centers, normalized, matmul_dtype
        self.min_norm = MIN_NORM if bounded else 0.0

    def block(self, part: slice, inputs: Inputs, inverse: Tensor | None = None) -> Block:
        """The products of the classes in ``part``, and in ``nearest`` which sub-centre each came from."""
        a, rows = inputs.batch[0], self._rows(inputs.weight, part).to(inputs.batch[0].dtype)
        if self.normalized and inverse is None:
            inverse = inverse_norm(rows)
        # The memory runs over the samples first: the nearest centre is found along it, and so are sums over classes.
        each = self._matmul(rows.flatten(0, 1), a.T)
        if inverse is not None:
            each.mul_(inverse.view(-1, 1))
        z, nearest = nearest_of(each.T, self.sub_centers)
        return Block(inverse, z, None if nearest is None else nearest.to(_index_dtype(self.sub_centers)))

    def logits(self, part: slice, block: Block, inputs: Inputs) -> Float[Tensor, "n c"]:
        """z of the classes in ``part``: the products, and a new tensor only where there is a bias."""
        assert block.products is not None
        return block.products if inputs.bias is None else block.products + inputs.bias[part]

    def pull(
        self,
        part: slice,
        block: Block,
        inputs: Inputs,
        slope: Callable[[Tensor], Tensor],
        gradients: Gradients,
    ) -> None:
        """Carry ∂L/∂z to a, w and b."""
        d = slope(self.logits(part, block, inputs))
        if gradients.bias is not None:
            torch.sum(d, 0, out=gradients.bias[part])
        self.pull_products(part, block, inputs, d, gradients)

    def pull_products(self, part: slice, block: Block, inputs: Inputs, d: Tensor, gradients: Gradients) -> None:
        """Carry ∂L/∂products to a and w; ``d`` is used up."""
        a, d_a = inputs.batch[0], gradients.batch[0]
        assert block.products is not None
        rows = self._rows(inputs.weight, part).flatten(0, 1).to(a.dtype)
        each = d if block.nearest is None else spread(d, block.nearest, self.sub_centers)
        inverse = None if block.inverse is None else block.inverse.flatten()
        if gradients.weight is not None:
            along = None if inverse is None else sums_of(each, block.products, self.sub_centers)
            self._pull_rows(self._rows(gradients.weight, part).flatten(0, 1), each, along, rows, a, inverse)
        if d_a is not None:
            d_a += self._matmul(each if inverse is None else each.mul_(inverse), rows)

    def _pull_rows(
        self,
        out: Tensor,
        d: Tensor,
        along: Tensor | None,
        rows: Tensor,
        a: Tensor,
        inverse: Tensor | None,
    ) -> None:
        """(Dᵀa − (Dᵀz)·w/‖w‖²)/‖w‖ into ``out``."""
        direct = out.dtype == a.dtype and self.matmul_dtype is None
        result = torch.mm(d.T, a, out=out) if direct else self._matmul(d.T, a)
        if inverse is not None and along is not None:
            # As normalize(w, min_norm=…): the gradient of a shorter row is that of one of this length. One factor of
            # 1/‖w‖ at a time: their square may leave the range.
            bounded = inverse * (1 / (self.min_norm * inverse)).clamp_max(1)
            # A factor of 1e33 is as large as float32 allows beside the sums; rows shorter than 1e-33 have rounded directions.
            result.addcmul_(rows, along.mul_(inverse.clamp_max(1e33)).neg_().unsqueeze(-1)).mul_(bounded.unsqueeze(-1))
        if not direct:
            out.copy_(result)

    def _matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b if self.matmul_dtype is None else (a.to(self.matmul_dtype) @ b.to(self.matmul_dtype)).to(a.dtype)

    def _rows(self, weight: Tensor, part: slice) -> Tensor:
        return weight.unflatten(0, (-1, self.sub_centers))[part]


def _index_dtype(sub_centers: int) -> torch.dtype:
    """The smallest dtype that counts the centres: a large head keeps one number per logit."""
    return torch.int8 if sub_centers <= 127 else torch.int16
