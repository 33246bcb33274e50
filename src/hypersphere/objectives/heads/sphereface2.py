"""SphereFace2: one binary classification per class instead of one softmax over all classes."""

import math

from torch import nn
from typing_extensions import Unpack

from ...angular import Power
from ..comparisons import Binary
from ..head import MarginSoftmax
from ..head_options import HeadOptions
from ..margins import Strength, TwoSided


class SphereFace2(MarginSoftmax):
    r"""One binary classification per class instead of a softmax over all classes (Wen et al., 2022).

    .. math:: \frac{λ}{r}·\operatorname{softplus}(−r(g(θ_y) − m) − b)
        + \frac{1−λ}{r}·Σ_{j≠y} \operatorname{softplus}(r(g(θ_j) + m) + b),\quad g(θ) = 2((\cos θ + 1)/2)^t − 1

    b is one learned number. It starts where the loss of features at right angles to every class is smallest.

    Args:
        m: Margin; 0.4 is the paper's value for faces, 0.2 for speakers.
        scale: r; 40 is the paper's value for faces, 32 for speakers.
        t: Exponent of g.
        balance: Weight λ of the positive class, in (0, 1).

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
        """Draw the weights again and set b to the minimum of the loss at θ = π/2."""
        super().reset_parameters()
        assert self.bias is not None
        assert isinstance(self.margin, TwoSided)
        assert isinstance(self.angular, Power)
        assert isinstance(self.scale, (int, float))
        m = self.margin.m.most if isinstance(self.margin.m, Strength) else self.margin.m
        nn.init.constant_(
            self.bias, compute_initial_bias(self.num_classes, self.balance, self.scale, m, self.angular.t)
        )


def compute_initial_bias(num_classes: int, balance: float, scale: float, m: float, t: float) -> float:
    r"""Return the b at which the derivative of the loss by b is 0 for features at right angles to every class.

    The condition is λ·σ(−r(g − m) − b) = (1−λ)(C−1)·σ(r(g + m) + b) with g = g(π/2). With z = λ/((1−λ)(C−1)) and
    u = e^b it is a quadratic equation in u, whose positive root is 2z·e^{−r(g+m)}/(1 − z + √((1 − z)² + 4z·e^{−2rm})).

    Args:
        num_classes: Number of classes C.
        balance: λ.
        scale: r.
        m: Margin.
        t: Exponent of g.

    Returns:
        The initial bias.

    >>> round(compute_initial_bias(10, 0.7, 40.0, 0.4, 3.0), 4)
    12.9502
    """
    z = balance / ((1 - balance) * (num_classes - 1))
    other = scale * (2 * 0.5**t - 1 + m)
    root = math.hypot(1 - z, 2 * math.sqrt(z) * math.exp(-scale * m))
    # For z > 1 the sum 1 − z + root loses digits by cancellation; multiplying by its conjugate avoids that.
    below = 1 - z + root if z <= 1 else 4 * z * math.exp(-2 * scale * m) / (root - (1 - z))
    return math.log(2 * z) - other - math.log(below)
