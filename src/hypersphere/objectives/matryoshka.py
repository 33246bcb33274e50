"""A loss of prefixes of the features, so that their first dimensions can be used alone."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .head_presets import CosFace


class Matryoshka(nn.Module):
    r"""The mean of softmax losses of the first dimensions of the features, each with a classifier of its own.

    With a prefix :math:`x_{1:d}` and weights :math:`W^{(d)}` for every d in ``dims`` the loss is
    :math:`\frac{1}{|D|} Σ_{d ∈ D} L(W^{(d)}, x_{1:d}, y)` (Kusupati et al., 2022, arXiv:2205.13147), where L is
    :class:`CosFace`. It is added to the objective of all dimensions; the first d dimensions are then features of their own,
    smaller and faster to search.

    Args:
        in_features: The dimension of the features.
        num_classes: The number of classes.
        dims: The lengths of the prefixes.
        m: The margin. The default is that of ``hypersphere fit``.
        scale: The scale of the cosines. The default is that of :class:`CosFace`.

    Raises:
        ValueError: If a prefix is empty or not shorter than the features.

    >>> loss = Matryoshka(8, 3, dims=(2, 4))
    >>> loss(torch.randn(5, 8), torch.tensor([0, 1, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        dims: Sequence[int] = (16, 32, 64),
        *,
        m: float = 0.2,
        scale: float = 30.0,
    ):
        super().__init__()
        wrong = [dim for dim in dims if not 1 <= dim < in_features]
        if wrong or not dims:
            raise ValueError(f"dims must be prefixes shorter than the {in_features} features, got {list(dims)}")
        self.dims = tuple(dims)
        self.heads = nn.ModuleList([CosFace(dim, num_classes, m=m, scale=scale) for dim in self.dims])

    def forward(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> Float[Tensor, ""]:
        """Compute the loss of a batch."""
        parts = [head(features[:, :dim], labels) for dim, head in zip(self.dims, self.heads, strict=True)]
        return torch.stack(parts).mean()
