"""Heads with fixed class weights: a simplex, or other points on the sphere."""

import math
from collections.abc import Sequence

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
    r"""Return a simplex equiangular tight frame: C unit rows with the cosine −1/(C − 1) between any two.

    No C directions are farther apart. The rows are √(C/(C−1))·(I − 11ᵀ/C)·Pᵀ with a random rotation P.

    Args:
        num_classes: Number of rows C, at least 2.
        dim: Dimension, at least C − 1.
        generator: Source of the random rotation.

    Returns:
        The rows, (C, dim).

    Raises:
        ValueError: If the simplex does not fit into ``dim`` dimensions.

    >>> w = simplex_prototypes(4, 3)
    >>> (w @ w.T)[0, 1:]
    tensor([-0.3333, -0.3333, -0.3333])
    """
    if num_classes < 2 or dim < num_classes - 1:
        raise ValueError(
            f"a simplex of num_classes ≥ 2 points needs dim ≥ num_classes − 1, got {num_classes} points in {dim}"
        )
    centered = torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes
    # The points span C − 1 dimensions, all orthogonal to (1, …, 1); a basis of these needs no further column.
    basis = torch.linalg.qr(centered[:, :-1]).Q
    rotation = torch.linalg.qr(torch.randn(dim, num_classes - 1, dtype=torch.float64, generator=generator)).Q
    points = math.sqrt(num_classes / (num_classes - 1)) * basis @ rotation.T
    return points.to(torch.get_default_dtype())


class PrototypeSoftmax(MarginSoftmax):
    r"""Softmax s·cos θ with fixed class weights: only the features are trained.

    ``weight`` is a parameter without a gradient, so it is saved with the head, and functions that search for a classifier find
    it. Use it if classes will be added to a fixed arrangement, or if a hierarchy of the classes is known.

    Args:
        prototypes: The class weights (C, d). The default is :func:`simplex_prototypes`, which needs C ≤ d + 1.
        s: Instead of ``prototypes``, take points of least energy with this power
            (:func:`hypersphere.energy.place_prototypes`), for any C.
        groups: The group of each class, for points of least energy in two levels; ``s`` is then 1 by default.
        spread: Distance of the classes of a group from its center, as in :func:`hypersphere.energy.place_prototypes`.

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
        s: float | None = None,
        groups: Sequence[int] | None = None,
        spread: float = 0.5,
        margin: Margin | None = None,
        scale: Scale = 30.0,
        angular: Angular | None = None,
        **options: Unpack[HeadOptions],
    ):
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale=scale, **options)
        if prototypes is not None and (s is not None or groups is not None):
            raise ValueError(
                "prototypes cannot be combined with s or groups, which compute other prototypes; leave these out"
            )
        if prototypes is None:
            if self.sub_centers > 1:
                raise ValueError(f"a simplex has one center per class, got sub_centers={self.sub_centers}")
            if s is None and groups is None:
                prototypes = simplex_prototypes(num_classes, in_features)
            else:
                from ...energy import (
                    place_prototypes,
                )  # imported here, because objectives do not depend on energy otherwise

                prototypes = place_prototypes(num_classes, in_features, 1 if s is None else s, groups, spread)
        if prototypes.shape != self.weight.shape or not torch.isfinite(prototypes).all():
            raise ValueError(
                f"prototypes must be finite and of shape {tuple(self.weight.shape)}, got {tuple(prototypes.shape)}"
            )
        with torch.no_grad():
            self.weight.copy_(prototypes)
        self.weight.requires_grad_(False)
