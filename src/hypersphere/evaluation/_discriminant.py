"""Linear maps in closed form: principal components, and the discriminant that separates classes."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..geometry import normalize

MAX_COMPONENTS = 150  # dimensions of PCA in a baseline


def discriminant(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], shrink: float = 0.03, *, between: float = 0.0
) -> nn.Linear:
    r"""Fit a linear layer that puts more weight on directions in which classes differ, to append to an embedder.

    Classes are taken as Gaussian with the covariance W around means that are Gaussian with the covariance B (Ioffe 2006, "Probabilistic
    linear discriminant analysis"). In the basis in which W is the identity and B is diagonal with entries β, the mean is subtracted and
    every direction is multiplied by √(β/(1 + β)), so that the product of two outputs is that of one feature with the expected place of the
    other's class. Without that factor it would be within-class whitening, which blows up directions in which classes do not differ.

    Args:
        features: of training samples, as the embedder gives them; not of the samples that are to be recognized.
        labels: their classes, two or more, one of them with two or more samples.
        shrink: added to the diagonal of W, in parts of its mean: directions that do not vary are not trusted.
        between: shrinks B toward the covariance of all samples, scaled to the trace of B, from 0 (not at all) to 1. Means of
            few classes span few directions; without this the others are lost, although new classes differ in them.

    >>> generator = torch.Generator().manual_seed(0)
    >>> labels = torch.arange(50).repeat_interleave(20)
    >>> telling, noise = torch.randn(50, 1, generator=generator)[labels], 5 * torch.randn(1000, 1, generator=generator)
    >>> layer = discriminant(torch.cat([telling + 0.1 * torch.randn(1000, 1, generator=generator), noise], 1), labels)
    >>> layer(torch.tensor([[1.0, 0.0], [0.0, 1.0]])).sub(layer.bias).norm(dim=1).mul(10).round().tolist()
    [14.0, 0.0]
    """
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            f"features must be n×d with n labels, got {tuple(features.shape)} and labels {tuple(labels.shape)}"
        )
    if not shrink > 0:
        raise ValueError(f"shrink must be > 0, got {shrink}")
    if not 0 <= between <= 1:
        raise ValueError(f"between must lie in 0 … 1, got {between}")
    classes, index, counts = labels.unique(return_inverse=True, return_counts=True)
    if len(classes) < 2 or int(counts.max()) < 2:
        raise ValueError(
            f"two classes or more, and two samples of one of them, are needed, got {len(classes)} classes of at most "
            f"{int(counts.max()) if len(classes) else 0} samples"
        )
    x = features.double()
    if not bool(x.isfinite().all()):
        raise ValueError("features must be finite")
    means = x.new_zeros(len(classes), x.shape[1]).index_add_(0, index, x) / counts[:, None]
    center = means.mean(0)
    within, spread_of_means = _covariance(x - means[index]), _covariance(means - center)
    if between:
        whole = _covariance(x - center)
        share = spread_of_means.diagonal().sum() / whole.diagonal().sum()
        spread_of_means = (1 - between) * spread_of_means + between * share * whole
    scale = within.diagonal().mean()
    if not scale > 0:
        raise ValueError("samples of a class must differ, got classes whose samples are all the same")
    within.diagonal().add_(shrink * scale)
    whiten = torch.linalg.inv(torch.linalg.cholesky(within)).mT  # x ↦ x @ whiten has the identity within classes
    spread, basis = torch.linalg.eigh(whiten.mT @ spread_of_means @ whiten)
    spread = spread.clamp(min=0)
    weight = ((whiten @ basis) * (spread / (1 + spread)).sqrt()).mT
    layer = nn.Linear(x.shape[1], x.shape[1], device=features.device, dtype=features.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(-weight @ center)
    return layer.requires_grad_(False)


def principal_components(x: Float[Tensor, "n d"], count: int = MAX_COMPONENTS) -> Float[Tensor, "k d"]:
    """Return the leading directions of variation, unit vectors in rows, at most ``count`` and at most n − 1.

    >>> principal_components(torch.tensor([[0.0, 0.0], [2.0, 0.1], [4.0, 0.0]])).abs().round()[0].tolist()
    [1.0, 0.0]
    """
    centered = x.double() - x.double().mean(0)
    rank = max(1, min(count, len(x) - 1, x.shape[1]))
    if len(x) <= x.shape[1]:  # the small Gram matrix has the same nonzero eigenvalues
        spread, vectors = torch.linalg.eigh(centered @ centered.mT)
        rows = (vectors.mT @ centered).flip(0)[:rank]
        keep = spread.flip(0)[:rank] > 1e-10 * spread[-1].clamp_min(1e-300)
    else:
        spread, vectors = torch.linalg.eigh(centered.mT @ centered)
        rows = vectors.mT.flip(0)[:rank]
        keep = spread.flip(0)[:rank] > 1e-10 * spread[-1].clamp_min(1e-300)
    keep[0] = True
    return normalize(rows[keep]).to(x.dtype)


def _covariance(x: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    return x.mT @ x / len(x)
