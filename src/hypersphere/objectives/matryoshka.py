"""A loss on prefixes of the features, so that the first dimensions can be used alone."""

import functools
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..neurons import Classifier
from .head_presets import CosFace


class Matryoshka(nn.Module):
    r"""The mean of the losses of several prefixes of the features, each with its own head.

    With a prefix :math:`x_{1:d}` and weights :math:`W^{(d)}` for every d in ``dims`` the loss is
    :math:`\frac{1}{|D|} Σ_{d ∈ D} L(W^{(d)}, x_{1:d}, y)` (Kusupati et al., 2022, arXiv:2205.13147), where L is any head. It is
    added to the objective of all dimensions. The first d dimensions can then be used as smaller features, which are faster to
    search. ``hypersphere evaluate --prefix`` measures them. Use it if galleries are large or features are sent over a network.

    Args:
        in_features: The dimension of the features.
        num_classes: The number of classes.
        dims: The lengths of the prefixes.
        head: Builds a head from a dimension and the number of classes, such as ``hs.ArcFace``. None is :class:`CosFace` with ``m``
            and ``scale``.
        m: The margin of CosFace. The default is that of ``hypersphere fit``.
        scale: The scale of the cosines of CosFace. The default is that of :class:`CosFace`.

    Raises:
        ValueError: If a prefix is empty or not shorter than the features.

    >>> loss = Matryoshka(8, 3, dims=(2, 4), head=hs.ArcFace)
    >>> loss(torch.randn(5, 8), torch.tensor([0, 1, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        dims: Sequence[int] = (16, 32, 64),
        *,
        head: Callable[[int, int], Classifier] | None = None,
        m: float = 0.2,
        scale: float = 30.0,
    ):
        super().__init__()
        wrong = [dim for dim in dims if not 1 <= dim < in_features]
        if wrong or not dims:
            raise ValueError(f"dims must be prefixes shorter than the {in_features} features, got {list(dims)}")
        self.dims = tuple(dims)
        build_head = functools.partial(CosFace, m=m, scale=scale) if head is None else head
        self.heads = nn.ModuleList([build_head(dim, num_classes) for dim in self.dims])

    def forward(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> Float[Tensor, ""]:
        """Compute the loss of a batch.

        Args:
            features: The features.
            labels: The class of each sample.
        """
        parts = [head(features[:, :dim], labels) for dim, head in zip(self.dims, self.heads, strict=True)]
        return torch.stack(parts).mean()

    def step(self) -> None:
        """Advance the schedules of all heads by one step."""
        for head in self.heads:
            step = getattr(head, "step", None)
            if callable(step):
                step()
