"""The Inception score: confidence and diversity of a classifier's predictions for generated images."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class InceptionScore(NamedTuple):
    """Mean and standard deviation over splits.

    >>> InceptionScore(7.42, 0.08).value
    7.42
    """

    value: float
    std: float


def inception_score(probabilities: Float[Tensor, "n classes"], *, splits: int = 10) -> InceptionScore:
    r"""Return exp(E_x KL(p(y|x) ‖ p(y))) of the class probabilities of generated images (arXiv:1606.03498).

    It is 1 if all images have the same probabilities. It equals the number of classes if each image is assigned to one class
    with probability 1 and all classes occur equally often. It does not measure diversity within a class. Values of different
    classifiers are not comparable: table D.4 of Liu (2020) uses the Inception network on 50,000 images in 10 splits.

    Args:
        probabilities: Probabilities of each image in rows, from any classifier.
        splits: Number of consecutive parts of (nearly) equal size, each of which gets a score.

    Returns:
        Mean and standard deviation (divided by ``splits``) over the parts, computed in float64.

    Raises:
        ValueError: If rows are not probabilities, or there are fewer rows than splits.

    >>> inception_score(torch.eye(4).repeat(5, 1), splits=5)
    InceptionScore(value=4.0, std=0.0)
    >>> inception_score(torch.full((20, 4), 0.25), splits=5).value
    1.0
    """
    if not 1 <= splits <= len(probabilities):
        raise ValueError(f"splits must lie in 1 … {len(probabilities)}, the number of images, got {splits!r}")
    p = probabilities.detach().double().cpu()
    if not bool(p.isfinite().all()) or float(p.min()) < 0 or float((p.sum(1) - 1).abs().max()) > 1e-3:
        raise ValueError("probabilities must be finite, ≥ 0 and sum to 1 in every row; apply softmax to logits first")
    p = p / p.sum(1, keepdim=True)
    scores = []
    for part in p.tensor_split(splits):
        # Σ p·log(p/m) with 0·log 0 = 0
        divergence = (torch.xlogy(part, part) - torch.xlogy(part, part.mean(0))).sum(1)
        scores.append(divergence.mean().exp())
    values = torch.stack(scores)
    return InceptionScore(values.mean().item(), values.std(correction=0).item())
