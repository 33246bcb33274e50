"""The von Mises–Fisher distribution: the confidence of a feature's direction from its norm."""

import math

from jaxtyping import Float
from torch import Tensor

from ..geometry import norm
from ..geometry.bessel import compute_scaled_bessel, mean_length


def vmf_confidence(features: Float[Tensor, "n d"], scale: float = 1.0) -> Float[Tensor, "n"]:
    r"""Return A_d(κ) = I_{d/2}(κ)/I_{d/2−1}(κ) in [0, 1) of features of length κ/``scale``: the confidence of a direction.

    It is the length of the mean of directions that follow a von Mises–Fisher distribution of concentration κ: 0 for a
    feature of length 0, which could be anyone's, towards 1 as the length grows. It weighs images of a template
    (``quality`` of :func:`templates`) and orders them by quality; it is no probability of being right.

    Args:
        features: Features ``(n, d)`` whose lengths mean something, such as those of MagFace or of a plain softmax.
        scale: κ for a feature of length 1.

    >>> vmf_confidence(torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0]])).round(decimals=4).tolist()
    [0.0, 0.6716]
    """
    if not scale > 0:
        raise ValueError(f"scale must be a number > 0, got {scale!r}")
    kappa = scale * norm(features.detach().double())
    return mean_length(kappa, features.shape[1])


def log_normalizer(kappa: Float[Tensor, "*n"], dim: int) -> Float[Tensor, "*n"]:
    r"""Return log C_d(κ), C_d(κ) = κ^{d/2−1} / ((2π)^{d/2}·I_{d/2−1}(κ)), in float64 and finite at κ = 0.

    >>> round(float(4 * math.pi * log_normalizer(torch.zeros(1), 3).exp()), 9)  # one over the area of the sphere
    1.0
    """
    if dim < 2:
        raise ValueError(f"dim must be an integer ≥ 2, got {dim!r}")
    return -compute_scaled_bessel(kappa, dim / 2 - 1)[0] - dim / 2 * math.log(2 * math.pi)
