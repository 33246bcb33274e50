"""Alignment and uniformity: how close positive pairs are, and how evenly features cover the sphere."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import norm, normalize


def alignment(x: Float[Tensor, "n d"], y: Float[Tensor, "n d"], alpha: float = 2) -> Float[Tensor, ""]:
    r"""E ‖x̂ − ŷ‖^α over positive pairs, the rows of ``x`` and ``y``: 0 is perfect, 2^α the worst.

    >>> alignment(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 3.0]]))
    tensor(2.0000)
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be a number > 0, got {alpha!r}")
    if x.shape != y.shape or not len(x):
        raise ValueError(f"x and y must be rows of the same positive pairs, got shapes {tuple(x.shape)} and {tuple(y.shape)}")
    return norm(normalize(x) - normalize(y)).pow(alpha).mean()


def uniformity(x: Float[Tensor, "n d"], t: float = 2, *, chunk: int = 1024) -> Float[Tensor, ""]:
    r"""log E_{i≠j} exp(−t·‖x̂_i − x̂_j‖²): the lower, the more even; −4t is the bound of antipodal points, 0 a single point.

    Memory is ``chunk·n``; the gradient flows. The text's own measures of evenness are the energies of Part III.

    >>> uniformity(torch.tensor([[1.0, 0.0], [-2.0, 0.0]]))
    tensor(-8.)
    """
    if not t > 0 or chunk < 1:
        raise ValueError(f"t must be a number > 0 and chunk an integer ≥ 1, got {t!r} and {chunk!r}")
    if len(x) < 2:
        raise ValueError(f"x must have at least two rows, got {len(x)}")
    xhat = normalize(x)
    parts = []
    for start in range(0, len(x), chunk):
        # ‖a − b‖² = 2 − 2 a·b on the sphere; a feature of length 0 has no direction and counts by its true distance.
        rows = xhat[start : start + chunk]
        square = (rows * rows).sum(1, keepdim=True) + (xhat * xhat).sum(1) - 2 * rows @ xhat.T
        own = torch.arange(len(rows), device=x.device)
        exponent = (-t * square.clamp_min(0)).index_put((own, own + start), square.new_tensor(-math.inf))
        parts.append(exponent.logsumexp(1))
    return torch.cat(parts).logsumexp(0) - math.log(len(x) * (len(x) - 1))
