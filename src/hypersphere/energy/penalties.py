"""Penalties of the same shape as the energy that the text compares with; the Gram penalties are in ``hypersphere.geometry``."""

import torch
from jaxtyping import Float
from torch import Tensor


def srip(weight: Float[Tensor, "neurons *dim"], iterations: int = 10) -> Float[Tensor, ""]:
    r"""Spectral restricted isometry: σ(WWᵀ − I), the largest singular value, by power iteration (table 6.1).

    0 for orthonormal neurons. Each iteration multiplies twice by WWᵀ − I, from a fixed random vector; the value is a
    lower bound that rises with ``iterations``. Use with :class:`Penalty`.

    >>> srip(2 * torch.eye(3))
    tensor(3.)
    """
    if iterations < 1:
        raise ValueError(f"iterations must be a number ≥ 1, got {iterations!r}")
    with torch.autocast(weight.device.type, enabled=False):
        w = weight.flatten(1).to(torch.promote_types(weight.dtype, torch.float32))
        v = torch.randn(len(w), generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(w)
        with torch.no_grad():
            for _ in range(2 * iterations):
                image = _deviation(w, v)
                length = torch.linalg.vector_norm(image)
                v = image / torch.where(length > 0, length, 1)
            v = v / torch.linalg.vector_norm(v).clamp_min(torch.finfo(v.dtype).tiny)
        image = _deviation(w, v)
        square = image.square().sum()
        # With v the singular vector, d‖(WWᵀ − I)v‖ is the derivative of σ; at 0 it has none and none is given.
        return torch.where(square > 0, torch.where(square > 0, square, 1).sqrt(), 0)


def _deviation(w: Tensor, v: Tensor) -> Tensor:
    """(WWᵀ − I)v without the Gram matrix."""
    return w @ (w.T @ v) - v
