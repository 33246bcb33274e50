"""The named objectives of part I: a margin, an angular function and a scale each."""

from typing_extensions import Unpack

from ..angular import Angular, Linear
from .comparisons import MultiClassHinge
from .engine import Scale
from .head import MarginSoftmax
from .head_options import HeadOptions
from .margins import AdditiveAngle, AdditiveCosine, Multiplicative
from .margins.margin import Strength


class Softmax(MarginSoftmax):
    r"""The plain softmax loss, logits ‖w‖‖x‖cos θ + b = w·x + b (eq. 2.1, 2.2): the baseline, with a bias by default.

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
    r"""max(0, gap + max_{j≠y} z_j − z_y), z = w·x + b: the linear multi-class SVM, a baseline of tables 2.2–2.4.

    >>> Hinge(4, 3)(torch.zeros(2, 4), torch.tensor([0, 1])).item()
    1.0
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        gap: float = 1.0,
        bias: bool = True,
        **options: Unpack[HeadOptions],
    ):
        comparison = MultiClassHinge(gap)
        super().__init__(in_features, num_classes, scale="norms", bias=bias, comparison=comparison, **options)


class LSoftmax(MarginSoftmax):
    r"""Large-margin softmax: scale ‖w‖‖x‖, ψ(θ) = (−1)^k cos(mθ) − 2k (eq. 2.4–2.8).

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
    r"""Weight-normalized softmax, ‖x‖·g(θ), without a margin (eq. 2.18 with the cosine, 3.10 with any g).

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
    r"""Sphere-normalized softmax, s·cos θ (L_s, B.3: s from 10 to 70).

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
    r"""SphereFace, the angular softmax (A-Softmax): ψ(θ) = (−1)^k cos(mθ) − 2k, scale ‖x‖ (eq. 2.20); a constant ``scale`` gives L_m.

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
    r"""Generalized angular softmax: ψ(θ) = g(mθ) continued decreasingly, others g(θ), scale ‖x‖ (eq. 3.11).

    The linear g, the default, has no flat places (3.3); ``m = 4`` as in table 3.1.

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
    r"""CosFace, the additive margin softmax (AM-Softmax): s·(cos θ − m) (L_a1, D.11); s = 30, m = 0.35 are the setting D.6 follows.

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
    r"""Additive angular margin: s·cos(θ + m) (L_a2), continued past π; s = 64, m = 0.5 rad as its authors chose.

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


# The names of Liu (2020) for the same two classes; errors, configs and files say SphereFace and CosFace.
ASoftmax = SphereFace
AMSoftmax = CosFace
