"""The Fréchet distance between two sets of vectors, each modeled by a Gaussian."""

import torch
from jaxtyping import Float
from torch import Tensor


def frechet_distance(first: Float[Tensor, "n d"], second: Float[Tensor, "m d"]) -> float:
    r"""Return the squared Fréchet distance between two Gaussians fitted to two sets of vectors.

    With the means μ and covariances Σ of the sets, the result is
    ``‖μ₁ − μ₂‖² + tr(Σ₁ + Σ₂ − 2(Σ₁^{1/2} Σ₂ Σ₁^{1/2})^{1/2})``, computed in float64. For features of an Inception network
    it is called FID. Values from different feature spaces are not comparable.

    Raises:
        ValueError: If a set has fewer than two vectors.

    >>> round(frechet_distance(torch.eye(3), torch.eye(3) + 2.0), 6)
    12.0
    """
    if min(len(first), len(second)) < 2:
        raise ValueError(f"both sets need at least two vectors, got {len(first)} and {len(second)}")
    (mean, covariance), (other_mean, other_covariance) = map(_compute_moments, (first.double(), second.double()))
    root = _compute_square_root(covariance)
    cross = torch.linalg.eigvalsh(root @ other_covariance @ root).clamp(min=0).sqrt().sum()
    distance = (mean - other_mean).square().sum() + covariance.trace() + other_covariance.trace() - 2 * cross
    return max(distance.item(), 0.0)  # rounding errors can make it slightly negative


def _compute_moments(vectors: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "d"], Float[Tensor, "d d"]]:
    mean = vectors.mean(0)
    return mean, (vectors - mean).T @ (vectors - mean) / (len(vectors) - 1)


def _compute_square_root(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T
