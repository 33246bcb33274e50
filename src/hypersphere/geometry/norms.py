"""Lengths and directions: the only place of the library that divides by a norm."""

import torch
from jaxtyping import Float
from torch import Tensor


def norm(x: Float[Tensor, "..."], dim: int = -1, keepdim: bool = False) -> Float[Tensor, "..."]:
    r"""Euclidean length ‖x‖ along ``dim``, without overflow or underflow, with a zero gradient at 0.

    Half precision is accumulated in float32 and returned in the input's dtype.

    >>> norm(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([5.0000e+30, 0.0000e+00])
    """
    y, scale = _rescaled(_accumulable(x), dim)
    length, _ = _length(y, dim)
    result = (length * scale).to(x.dtype)
    return result if keepdim else result.squeeze(dim)


def normalize(x: Float[Tensor, "..."], dim: int = -1, *, min_norm: float = 0.0) -> Float[Tensor, "..."]:
    r"""The direction x̂ = x/‖x‖ along ``dim``, right for every representable length.

    At x = 0 there is no direction: the result is 0 and its gradient 0. The exact gradient grows as 1/‖x‖;
    ``min_norm`` bounds it to what a vector of that length would have, and leaves the value alone.
    Half precision is accumulated in float32 and returned in the input's dtype.

    >>> normalize(torch.tensor([[3e-30, 4e-30], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    y, _ = _rescaled(_accumulable(x), dim, min_norm)
    length, nonzero = _length(y, dim)
    return torch.where(nonzero, y / torch.where(nonzero, length, 1), 0).to(x.dtype)


def cosine(x: Float[Tensor, "*x d"], w: Float[Tensor, "*w d"], *, pairwise: bool = False) -> Float[Tensor, "..."]:
    r"""cos θ between vectors, in [−1, 1]; 0 where one of them is 0.

    Aligned by default: leading axes broadcast, ``(…, d), (…, d) → (…)``. With ``pairwise`` every row of ``x`` meets
    every row of ``w``: ``(…, n, d), (…, c, d) → (…, n, c)``. Computed in float32 or better, also under autocast.

    >>> cosine(torch.tensor([1.0, 0.0]), torch.tensor([[2.0, 0.0], [0.0, 5.0], [-3.0, 0.0]]))
    tensor([ 1.,  0., -1.])
    >>> cosine(torch.eye(2), torch.tensor([[2.0, 0.0], [0.0, 5.0], [-3.0, 0.0]]), pairwise=True)
    tensor([[ 1.,  0., -1.],
            [ 0.,  1.,  0.]])
    """
    _check_vectors(x, w, pairwise)
    dtype = torch.promote_types(x.dtype, w.dtype)
    with torch.autocast(x.device.type, enabled=False):
        xhat, what = (normalize(v.to(torch.promote_types(dtype, torch.float32))) for v in (x, w))
        cos = xhat @ what.transpose(-1, -2) if pairwise else (xhat * what).sum(-1)
        return cos.clamp(-1, 1).to(dtype)


def _accumulable(x: Tensor) -> Tensor:
    """Half precision as float32, anything wider as it is."""
    if not x.is_floating_point():
        raise ValueError(f"x must be a floating-point tensor, got {x.dtype}")
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _rescaled(x: Tensor, dim: int, min_norm: float = 0.0) -> tuple[Tensor, Tensor]:
    """``x`` over its largest entry, and that entry, so that squares neither overflow nor vanish.

    The scale is a constant to autograd: both ‖x‖ = scale·‖x/scale‖ and x̂ hold for any constant.
    """
    if x.shape[dim] == 0:
        raise ValueError(f"x must have at least one entry along dim {dim}, got shape {tuple(x.shape)}")
    scale = x.detach().abs().amax(dim, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    y = x / scale
    if min_norm > 0:
        length, _ = _length(y.detach(), dim)
        y = (x - x.detach()) / torch.maximum(scale, min_norm / length) + y.detach()
    return y, scale


def _length(y: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """‖y‖ of rescaled vectors and where it is not 0; the root's infinite slope at 0 is never touched."""
    square = (y * y).sum(dim, keepdim=True)
    nonzero = square != 0  # NaN stays NaN
    return torch.where(nonzero, torch.where(nonzero, square, 1).sqrt(), 0), nonzero


def _check_vectors(x: Tensor, w: Tensor, pairwise: bool) -> None:
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
            "for every row of x with every row of w pass pairwise=True"
        )
        raise ValueError(message) from None
