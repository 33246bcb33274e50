"""Lengths, directions and cosines, accurate for vectors of every representable length."""

import torch
from jaxtyping import Float
from torch import Tensor

from .numerics import accumulation_dtype, upcast


def norm(x: Float[Tensor, "..."], dim: int = -1, keepdim: bool = False) -> Float[Tensor, "..."]:
    r"""Compute the norm ‖x‖ along ``dim``, without overflow or underflow, with a zero gradient at 0.

    Half precision is accumulated in float32 and returned in the input's dtype.

    >>> norm(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([5.0000e+30, 0.0000e+00])
    """
    y, scale = _rescale(upcast(x), dim)
    length, _ = compute_length(y, dim)
    result = (length * scale).to(x.dtype)
    return result if keepdim else result.squeeze(dim)


def normalize(x: Float[Tensor, "..."], dim: int = -1, *, min_norm: float = 0.0) -> Float[Tensor, "..."]:
    r"""Compute the direction x̂ = x/‖x‖ along ``dim``, accurate for every representable length.

    At x = 0 the result and its gradient are 0. Elsewhere the gradient grows as 1/‖x‖. A vector shorter than ``min_norm``
    gets the gradient of a vector of this length; the value does not change.
    Half precision is accumulated in float32 and returned in the input's dtype.

    >>> normalize(torch.tensor([[3e-30, 4e-30], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    y, _ = _rescale(upcast(x), dim, min_norm)
    length, nonzero = compute_length(y, dim)
    return torch.where(nonzero, y / torch.where(nonzero, length, 1), 0).to(x.dtype)


@torch.no_grad()
def inverse_norm(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows"]:
    r"""Return 1/‖x‖ of vectors along the last axis, 0 where x = 0; a constant to autograd.

    It is computed in one pass if no square overflows or underflows, otherwise by :func:`norm`. Use it in hand-written
    backward passes.

    >>> inverse_norm(torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e30, 4e30]]))
    tensor([2.0000e-01, 0.0000e+00, 2.0000e-31])
    """
    x = upcast(x)
    length = torch.linalg.vector_norm(x, dim=-1)
    limits = torch.finfo(x.dtype)
    low, high = 1e4 * limits.tiny**0.5, 1e-4 * limits.max**0.5
    if not bool(((length > low) & (length < high)).all()):
        length = norm(x)
    # Clamp to the smallest normal number, below which 1/‖x‖ would overflow. NaN stays NaN.
    return torch.where(length == 0, 0, 1 / length.clamp_min(limits.tiny))


def cosine(x: Float[Tensor, "*x d"], w: Float[Tensor, "*w d"], *, pairwise: bool = False) -> Float[Tensor, "..."]:
    r"""Compute cos θ between vectors, in [−1, 1]; 0 if one of them is 0.

    By default, leading axes broadcast: ``(…, d), (…, d) → (…)``. With ``pairwise``, every row of ``x`` is compared with
    every row of ``w``: ``(…, n, d), (…, c, d) → (…, n, c)``. Cosines are computed in float32 or better, also under autocast.

    >>> cosine(torch.tensor([1.0, 0.0]), torch.tensor([[2.0, 0.0], [0.0, 5.0], [-3.0, 0.0]]))
    tensor([ 1.,  0., -1.])
    >>> cosine(torch.eye(2), torch.tensor([[2.0, 0.0], [0.0, 5.0], [-3.0, 0.0]]), pairwise=True)
    tensor([[ 1.,  0., -1.],
            [ 0.,  1.,  0.]])
    """
    check_vectors(x, w, pairwise)
    dtype = torch.promote_types(x.dtype, w.dtype)
    with torch.autocast(x.device.type, enabled=False):
        xhat, what = (normalize(v.to(accumulation_dtype(x, w))) for v in (x, w))
        cos = xhat @ what.transpose(-1, -2) if pairwise else (xhat * what).sum(-1)
        return cos.clamp(-1, 1).to(dtype)


def _rescale(x: Tensor, dim: int, min_norm: float = 0.0) -> tuple[Tensor, Tensor]:
    """Divide ``x`` by its largest absolute entry, so that squares neither overflow nor underflow.

    Return the quotient and the divisor. The divisor is a constant to autograd, because ‖x‖ = c·‖x/c‖ and the direction of
    x/c is that of x for any constant c > 0.

    ``min_norm`` does not change the value of the quotient, but for vectors shorter than ``min_norm`` it reduces the
    derivative with respect to x: the term x − x.detach() is 0 and carries the gradient, divided by a larger number.
    """
    if x.shape[dim] == 0:
        raise ValueError(f"x must have at least one entry along dim {dim}, got shape {tuple(x.shape)}")
    scale = x.detach().abs().amax(dim, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    y = x / scale
    if min_norm > 0:
        length, _ = compute_length(y.detach(), dim)
        y = (x - x.detach()) / torch.maximum(scale, min_norm / length) + y.detach()
    return y, scale


def compute_length(y: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return ‖y‖ of rescaled vectors, and a mask of the nonzero ones. The gradient at 0 is 0 instead of NaN."""
    square = (y * y).sum(dim, keepdim=True)
    nonzero = square != 0  # NaN stays NaN
    return torch.where(nonzero, torch.where(nonzero, square, 1).sqrt(), 0), nonzero


def check_vectors(x: Tensor, w: Tensor, pairwise: bool) -> None:
    """Check the shapes of two sets of vectors to compare, either pairwise or with leading axes that broadcast.

    Raises:
        ValueError: If the vectors differ in dimension, or their leading axes do not broadcast.
    """
    if x.shape[-1] != w.shape[-1]:
        raise ValueError(f"x and w must have the same last dimension, got shapes {tuple(x.shape)} and {tuple(w.shape)}")
    if pairwise:
        if x.ndim < 2 or w.ndim < 2:
            raise ValueError(
                f"pairwise needs rows, (…, n, d) and (…, c, d), got shapes {tuple(x.shape)} and {tuple(w.shape)}"
            )
        return
    try:
        torch.broadcast_shapes(x.shape, w.shape)
    except RuntimeError:
        message = (
            f"shapes {tuple(x.shape)} and {tuple(w.shape)} do not broadcast; "
            "to compare every row of x with every row of w, pass pairwise=True"
        )
        raise ValueError(message) from None
