"""Random points on the sphere."""

import torch
from jaxtyping import Float
from torch import Tensor

from .norms import normalize


def uniform(
    n: int,
    dim: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "n dim"]:
    r"""Draw ``n`` points uniformly from the unit sphere of R^dim: normalized Gaussian vectors.

    >>> uniform(3, 5, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([3, 5])
    """
    if n < 0 or dim < 1:
        raise ValueError(f"uniform needs n ≥ 0 points in dim ≥ 1 dimensions, got n={n}, dim={dim}")
    return normalize(torch.randn(n, dim, generator=generator, dtype=dtype, device=device))
