"""Class weights that are not learned: a simplex, or any other set of points on the sphere."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import Unpack

from ...angular import Angular
from ..engine import Scale
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import Margin


def simplex_prototypes(num_classes: int, dim: int, *, generator: torch.Generator | None = None) -> Float[Tensor, "c d"]:
    r"""The simplex equiangular tight frame √(C/(C−1))·(I − 11ᵀ/C)·Pᵀ: C unit rows at cosine −1/(C − 1) to each other.

    No C directions are farther apart. P is a random rotation into ``dim`` ≥ C − 1 dimensions.

    >>> w = simplex_prototypes(4, 3)
    >>> (w @ w.T)[0, 1:]
    tensor([-0.3333, -0.3333, -0.3333])
    """
    if num_classes < 2 or dim < num_classes - 1:
        raise ValueError(
            f"a simplex of num_classes ≥ 2 points needs dim ≥ num_classes − 1, got {num_classes} points in {dim}"
        )
    centred = torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes
    # The first C − 1 columns of an orthonormal basis of what is orthogonal to 1 hold the same points without a waste.
    basis = torch.linalg.qr(centred[:, :-1]).Q
    rotation = torch.linalg.qr(torch.randn(dim, num_classes - 1, dtype=torch.float64, generator=generator)).Q
    points = math.sqrt(num_classes / (num_classes - 1)) * basis @ rotation.T
    return points.to(torch.get_default_dtype())


class PrototypeSoftmax(MarginSoftmax):
    r"""s·cos θ to fixed class weights: only the features learn. ``prototypes`` (C, d) defaults to a simplex.

    Any rows will do, such as ``hypersphere.energy.minimize_energy(C, d)[0]`` where C exceeds d + 1. ``weight`` stays a
    parameter that asks for no gradient, so it is saved with the head and found by whatever looks for a classifier.

    >>> head = PrototypeSoftmax(8, 5)
    >>> head.weight.requires_grad, head(torch.randn(2, 8), torch.tensor([0, 4])).ndim
    (False, 0)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        prototypes: Float[Tensor, "c d"] | None = None,
        margin: Margin | None = None,
        scale: Scale = 30.0,
        angular: Angular | None = None,
        **options: Unpack[HeadOptions],
    ):
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale=scale, **options)
        if prototypes is None:
            if self.sub_centers > 1:
                raise ValueError(f"a simplex has one centre per class, got sub_centers={self.sub_centers}")
            prototypes = simplex_prototypes(num_classes, in_features)
        if prototypes.shape != self.weight.shape or not torch.isfinite(prototypes).all():
            raise ValueError(
                f"prototypes must be finite and of shape {tuple(self.weight.shape)}, got {tuple(prototypes.shape)}"
            )
        with torch.no_grad():
            self.weight.copy_(prototypes)
        self.weight.requires_grad_(False)
