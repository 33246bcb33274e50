"""The von Mises–Fisher distribution: what the length of a feature says about how sure its direction is."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import norm

LARGE = 60.0  # the order from which the uniform expansion of I_ν is exact to float64


def vmf_confidence(features: Float[Tensor, "n d"], scale: float = 1.0) -> Float[Tensor, "n"]:
    r"""Return A_d(κ) = I_{d/2}(κ)/I_{d/2−1}(κ) in [0, 1) of features of length κ/``scale``: how sure a direction is.

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


def mean_length(kappa: Float[Tensor, "*n"], dim: int) -> Float[Tensor, "*n"]:
    """Return A_d(κ) = I_{d/2}(κ)/I_{d/2−1}(κ), by the recurrence from large orders down, which is stable."""
    return _scaled_bessel(kappa, dim / 2 - 1)[1]


def log_normalizer(kappa: Float[Tensor, "*n"], dim: int) -> Float[Tensor, "*n"]:
    r"""Return log C_d(κ), C_d(κ) = κ^{d/2−1} / ((2π)^{d/2}·I_{d/2−1}(κ)), in float64 and finite at κ = 0.

    >>> round(float(4 * math.pi * log_normalizer(torch.zeros(1), 3).exp()), 9)  # one over the area of the sphere
    1.0
    """
    if dim < 2:
        raise ValueError(f"dim must be an integer ≥ 2, got {dim!r}")
    return -_scaled_bessel(kappa, dim / 2 - 1)[0] - dim / 2 * math.log(2 * math.pi)


def _scaled_bessel(kappa: Float[Tensor, "*n"], order: float) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    """log(I_ν(κ)·κ^{−ν}) and I_{ν+1}(κ)/I_ν(κ).

    Both start at an order where the uniform expansion holds and come down by I_ν/I_{ν+1} = 2(ν + 1)/κ + I_{ν+2}/I_{ν+1}.
    """
    kappa = kappa.double()
    steps = max(0, math.ceil(LARGE - order))
    top = order + steps
    root = torch.hypot(kappa, kappa.new_tensor(top))
    value = root - top * torch.log(top + root) + _correction(root, top)
    ratio = _ratio(kappa, root, top)
    for k in range(steps):
        below = top - k - 1
        lifted = 2 * (below + 1) + kappa * ratio  # κ·I_ν/I_{ν+1}
        value, ratio = value + lifted.log(), kappa / lifted
    return value, ratio


def _ratio(kappa: Float[Tensor, "*n"], root: Float[Tensor, "*n"], order: float) -> Float[Tensor, "*n"]:
    """I_{ν+1}(κ)/I_ν(κ) of a large ν: the quotient of two expansions, their differences taken before any rounding."""
    above = torch.hypot(kappa, kappa.new_tensor(order + 1))
    step = (2 * order + 1) / (root + above)  # above − root
    exponent = step - order * torch.log1p((1 + step) / (order + root))
    exponent = exponent + _correction(above, order + 1) - _correction(root, order)
    return kappa / (order + 1 + above) * torch.exp(exponent)


def _correction(root: Float[Tensor, "*n"], order: float) -> Float[Tensor, "*n"]:
    """log(u(t)/√(2π·root)) with t = ν/root, root = √(ν² + κ²) (Abramowitz and Stegun, 1964, 9.7.7 and 9.3.9)."""
    t = order / root
    first = (3 * t - 5 * t**3) / 24
    second = (81 * t**2 - 462 * t**4 + 385 * t**6) / 1152
    third = (30375 * t**3 - 369603 * t**5 + 765765 * t**7 - 425425 * t**9) / 414720
    fourth = (4465125 * t**4 - 94121676 * t**6 + 349922430 * t**8 - 446185740 * t**10 + 185910725 * t**12) / 39813120
    series = first / order + second / order**2 + third / order**3 + fourth / order**4
    return torch.log1p(series) - 0.5 * torch.log(2 * math.pi * root)
