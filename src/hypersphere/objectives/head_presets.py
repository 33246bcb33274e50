"""The named objectives of part I: a margin, an angular function and a scale each."""

from typing import Literal

from typing_extensions import Unpack

from ..angular import Angular, Linear
from .comparisons import MultiClassHinge
from .engine import Scale
from .head import MarginSoftmax
from .head_options import HeadOptions
from .margins import AdditiveAngle, AdditiveCosine, Multiplicative
from .margins.margin import Strength


class Softmax(MarginSoftmax):
    r"""Plain softmax loss, logits ‖w‖‖x‖cos θ + b = w·x + b (eq. 2.1, 2.2): the baseline.

    Args:
        bias: Whether to learn one bias per class, starting at 0.

    >>> Softmax(4, 3)
    Softmax(
      in_features=4, num_classes=3, scale='norms', bias=True
      (margin): NoMargin()
      (angular): Cosine()
      (comparison): CrossEntropy()
    )
    """

    def __init__(self, in_features: int, num_classes: int, *, bias: bool = True, **options: Unpack[HeadOptions]):
        super().__init__(in_features, num_classes, scale="norms", bias=bias, **options)


class Hinge(MarginSoftmax):
    r"""Hinge loss of the linear multi-class SVM, max(0, gap + max_{j≠y} z_j − z_y) with z = w·x + b, or its square.

    It is a baseline of tables 2.2–2.4.

    Args:
        gap: Lead that the target's logit must have over all others; 1 as in the SVM.
        power: 1 for the hinge, 2 for the squared hinge.
        bias: Whether to learn one bias per class, starting at 0.

    >>> Hinge(4, 3)(torch.zeros(2, 4), torch.tensor([0, 1])).item()
    1.0
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        gap: float = 1.0,
        power: Literal[1, 2] = 1,
        bias: bool = True,
        **options: Unpack[HeadOptions],
    ):
        comparison = MultiClassHinge(gap, power)
        super().__init__(in_features, num_classes, scale="norms", bias=bias, comparison=comparison, **options)


class LSoftmax(MarginSoftmax):
    r"""Large-margin softmax: scale ‖w‖‖x‖, ψ(θ) = (−1)^k cos(mθ) − 2k (eq. 2.4–2.8).

    Large margins are hard to train from the start; pass ``annealing=hs.Annealing(…)``.

    Args:
        m: Factor that multiplies the target's angle, at least 1.

    >>> head = LSoftmax(8, 3, m=2)
    >>> head(torch.randn(4, 8), torch.tensor([0, 1, 2, 0])).shape
    torch.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        m: float | Strength = 4,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        margin = Multiplicative(m)
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale="norms", bias=bias, **options)


class WSoftmax(MarginSoftmax):
    r"""Softmax with normalized class weights, ‖x‖·g(θ), without a margin (eq. 2.18 with the cosine, 3.10 with any g).

    >>> head = WSoftmax(8, 3, angular=hs.angular.Linear())
    >>> head.logits(torch.randn(4, 8)).shape
    torch.Size([4, 3])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        super().__init__(in_features, num_classes, angular=angular, scale="feature_norm", bias=bias, **options)


class SSoftmax(MarginSoftmax):
    r"""Softmax with normalized features and class weights, s·cos θ, without a margin (L_s, B.3).

    >>> head = SSoftmax(8, 3, scale=20.0)
    >>> bool(head.logits(100 * torch.randn(4, 8)).abs().max() <= 20)
    True
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        scale: Scale = 30.0,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        super().__init__(in_features, num_classes, angular=angular, scale=scale, bias=bias, **options)


class SphereFace(MarginSoftmax):
    r"""SphereFace, the angular softmax (A-Softmax): ψ(θ) = (−1)^k cos(mθ) − 2k, scale ‖x‖ (eq. 2.20).

    Large margins are hard to train from the start; pass ``annealing=hs.Annealing(…)``.

    Args:
        m: Factor that multiplies the target's angle, at least 1; 4 as in the experiments of Liu (2020).
        scale: ``"feature_norm"`` for ‖x‖, or a number, which gives L_m.

    >>> head = SphereFace(8, 3, m=4, annealing=hs.Annealing(start=100, floor=5))
    >>> head(torch.randn(4, 8), torch.tensor([0, 1, 2, 0])).requires_grad
    True
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        m: float | Strength = 4,
        scale: Scale = "feature_norm",
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        margin = Multiplicative(m)
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale=scale, bias=bias, **options)


class GASoftmax(MarginSoftmax):
    r"""Generalized angular softmax: ψ(θ) = g(mθ), continued decreasingly past π, scale ‖x‖ (eq. 3.11).

    Args:
        m: Factor that multiplies the target's angle, at least 1; 4 as in table 3.1.
        angular: g, an object of :mod:`hypersphere.angular`. The default is the linear function, whose slope is nowhere
            0 (3.3).
        scale: ``"feature_norm"`` for ‖x‖, or a positive number.

    >>> head = GASoftmax(8, 3, m=2, angular=hs.angular.Linear())
    >>> head(torch.randn(4, 8), torch.tensor([0, 1, 2, 0])).requires_grad
    True
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        m: float | Strength = 4,
        angular: Angular | None = None,
        scale: Scale = "feature_norm",
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        angular, margin = Linear() if angular is None else angular, Multiplicative(m)
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale=scale, bias=bias, **options)


class CosFace(MarginSoftmax):
    r"""CosFace, the additive margin softmax (AM-Softmax): s·(cos θ − m) (L_a1, D.11).

    Args:
        m: Margin subtracted from the target's cosine; 0.35 as in D.6.
        scale: s; 30 as in D.6.

    >>> head = CosFace(8, 3)
    >>> head.scale, head.margin
    (30.0, AdditiveCosine(m=0.35))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        m: float | Strength = 0.35,
        scale: Scale = 30.0,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        margin = AdditiveCosine(m)
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale=scale, bias=bias, **options)


class ArcFace(MarginSoftmax):
    r"""ArcFace, the softmax with an additive angular margin: s·cos(θ + m) (L_a2).

    Where θ + m exceeds π, the cosine is continued so that the logit keeps decreasing.

    Args:
        m: Margin in radians, added to the target's angle; 0.5 is the authors' value.
        scale: s; 64 is the authors' value.

    >>> head = ArcFace(8, 3, m=0.3, scale=32.0)
    >>> head.predict(torch.randn(4, 8)).shape
    torch.Size([4])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        m: float | Strength = 0.5,
        scale: Scale = 64.0,
        angular: Angular | None = None,
        bias: bool = False,
        **options: Unpack[HeadOptions],
    ):
        margin = AdditiveAngle(m)
        super().__init__(in_features, num_classes, margin=margin, angular=angular, scale=scale, bias=bias, **options)


# The names of Liu (2020) for the same two classes. Messages, settings and files say SphereFace and CosFace.
ASoftmax = SphereFace
AMSoftmax = CosFace
