"""Confidence of the direction of a feature from its length, by the von Mises–Fisher distribution."""

import math

from jaxtyping import Float
from torch import Tensor

from ..geometry import norm
from ..geometry.bessel import compute_scaled_bessel, mean_length


def vmf_confidence(features: Float[Tensor, "n d"], scale: float = 1.0) -> Float[Tensor, "n"]:
    r"""Return the confidence A_d(κ) = I_{d/2}(κ)/I_{d/2−1}(κ) in [0, 1) of features of length κ/``scale``.

    It is the length of the mean direction of a von Mises–Fisher distribution with concentration κ: 0 for a feature of
    length 0, and closer to 1 the longer the feature is. Use it as the ``quality`` of :func:`templates` or to sort images by
    quality. It is not a probability of being correct.

    Args:
        features: Features ``(n, d)`` with informative lengths, for example of MagFace or of a plain softmax.
        scale: κ of a feature of length 1.

    >>> vmf_confidence(torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0]])).round(decimals=4).tolist()
    [0.0, 0.6716]
    """
    if not scale > 0:
        raise ValueError(f"scale must be a number > 0, got {scale!r}")
    kappa = scale * norm(features.detach().double())
    return mean_length(kappa, features.shape[1])


def log_normalizer(kappa: Float[Tensor, "*n"], dim: int) -> Float[Tensor, "*n"]:
    r"""Return log C_d(κ) in float64, with C_d(κ) = κ^{d/2−1} / ((2π)^{d/2}·I_{d/2−1}(κ)); it is finite at κ = 0.

    >>> round(float(4 * math.pi * log_normalizer(torch.zeros(1), 3).exp()), 9)  # 1 / area of the sphere
    1.0
    """
    if dim < 2:
        raise ValueError(f"dim must be an integer ≥ 2, got {dim!r}")
    return -compute_scaled_bessel(kappa, dim / 2 - 1)[0] - dim / 2 * math.log(2 * math.pi)
