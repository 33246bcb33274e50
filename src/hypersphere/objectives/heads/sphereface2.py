"""SphereFace2: one binary problem per class instead of one softmax over all."""

import math

from torch import nn
from typing_extensions import Unpack

from ...angular import Power
from ..comparisons import Binary
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import Strength, TwoSided


class SphereFace2(MarginSoftmax):
    r"""(λ/r)·softplus(−r(g(θ_y) − m) − b) + ((1−λ)/r)·Σ_j softplus(r(g(θ_j) + m) + b)  (Wen et al., 2022).

    g(θ) = 2((cos θ + 1)/2)^t − 1. b is one learned number; it starts where the loss of features at right angles to
    every class is smallest. λ = ``balance`` = 0.7, r = ``scale`` = 40, m = 0.4 and t = 3 are the paper's for faces;
    speakers use r = 32 and m = 0.2.

    >>> head = SphereFace2(8, 10)
    >>> head.bias.shape, head.logits(torch.randn(2, 8)).shape
    (torch.Size([]), torch.Size([2, 10]))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        m: float | Strength = 0.4,
        scale: float = 40.0,
        t: float = 3.0,
        balance: float = 0.7,
        **options: Unpack[HeadOptions],
    ):
        if not 0 < balance < 1:
            raise ValueError(f"balance must be a number between 0 and 1, got {balance!r}")
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be a positive number, got {scale!r}")
        self.balance = float(balance)
        super().__init__(
            in_features,
            num_classes,
            margin=TwoSided(m),
            angular=Power(t),
            scale=scale,
            bias="shared",
            comparison=Binary(balance / scale, (1 - balance) / scale),
            **options,
        )

    def reset_parameters(self) -> None:
        """Draw the weights anew; b becomes the minimum of the loss at θ = π/2."""
        super().reset_parameters()
        assert self.bias is not None
        assert isinstance(self.margin, TwoSided)
        assert isinstance(self.angular, Power)
        assert isinstance(self.scale, (int, float))
        m = self.margin.m.most if isinstance(self.margin.m, Strength) else self.margin.m
        nn.init.constant_(self.bias, start_of_bias(self.num_classes, self.balance, self.scale, m, self.angular.t))


def start_of_bias(num_classes: int, balance: float, scale: float, m: float, t: float) -> float:
    r"""b with λ·σ(−r(g − m) − b) = (1−λ)(C−1)·σ(r(g + m) + b) at g = g(π/2): the derivative of the loss by b is 0.

    With z = λ/((1−λ)(C−1)) and u = e^b it is a quadratic in u, whose positive root is
    2z·e^{−r(g+m)}/(1 − z + √((1 − z)² + 4z·e^{−2rm})).

    >>> round(start_of_bias(10, 0.7, 40.0, 0.4, 3.0), 4)
    12.9502
    """
    z = balance / ((1 - balance) * (num_classes - 1))
    other = scale * (2 * 0.5**t - 1 + m)
    root = math.hypot(1 - z, 2 * math.sqrt(z) * math.exp(-scale * m))
    # 1 − z + root cancels where z > 1; its conjugate does not.
    below = 1 - z + root if z <= 1 else 4 * z * math.exp(-2 * scale * m) / (root - (1 - z))
    return math.log(2 * z) - other - math.log(below)
