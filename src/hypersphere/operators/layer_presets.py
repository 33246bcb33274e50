"""Operator layers with the names and constants of Liu (2020, 4.3.2, C.2), for use as layer factories."""

from ..angular import AngularLike
from . import magnitudes
from .conv import Conv2d
from .linear import Linear
from .magnitudes import Magnitude, MagnitudeLike
from .operator_layer import OperatorLayer


class _Preset(OperatorLayer):
    def decouple(self, magnitude: MagnitudeLike | None = None, angular: AngularLike | None = None) -> None:
        """Set h and g. The magnitude must be an instance of ``default_magnitude``."""
        expected: type[Magnitude] = self.default_magnitude
        if magnitude is not None and not isinstance(magnitude, expected):
            raise ValueError(
                f"magnitude of {type(self).__name__} must be a magnitudes.{expected.__name__}, got {magnitude!r}"
            )
        super().decouple(magnitude, angular)


class SphereConv2d(_Preset, Conv2d):
    r"""SphereConv (eq. 3.1, 4.4), h = α = 1: the output depends on the angle alone.

    >>> layer = SphereConv2d(3, 8, 3)
    >>> x = torch.randn(1, 3, 5, 5)
    >>> torch.allclose(layer(x), layer(7 * x), atol=1e-6)
    True
    """

    default_magnitude = magnitudes.Sphere


class BallConv2d(_Preset, Conv2d):
    """BallConv (eq. 4.5), α = 1. The learned radius ρ starts at 1 (C.2); ``magnitudes.Ball(learnable_radius=False)`` fixes it.

    >>> BallConv2d(3, 4, 3, padding=1)(torch.randn(2, 3, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    default_magnitude = magnitudes.Ball


class TanhConv2d(_Preset, Conv2d):
    """TanhConv (eq. 4.6), α = 1. The learned radius ρ starts at 1 (C.1); ``magnitudes.Tanh(learnable_radius=False)`` fixes it.

    >>> TanhConv2d(3, 4, 3, padding=1)(torch.randn(2, 3, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    default_magnitude = magnitudes.Tanh


class LinearConv2d(_Preset, Conv2d):
    """LinearConv (eq. 4.7), α = 1: the inner product with normalized filters.

    >>> LinearConv2d(3, 4, 3, padding=1)(torch.randn(2, 3, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    default_magnitude = magnitudes.Linear


class SegConv2d(_Preset, Conv2d):
    """SegConv (eq. 4.8), α = 1, β = 1/2. The learned radius ρ starts at 1 (C.3).

    ``magnitudes.Seg(learnable_radius=False)`` fixes it.

    >>> SegConv2d(3, 4, 3, padding=1)(torch.randn(2, 3, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    default_magnitude = magnitudes.Seg


class LogConv2d(_Preset, Conv2d):
    """LogConv (eq. 4.9), α = 1: the magnitude grows with the logarithm of ‖x‖.

    >>> LogConv2d(3, 4, 3, padding=1)(torch.randn(2, 3, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    default_magnitude = magnitudes.Log


class MixConv2d(_Preset, Conv2d):
    """MixConv (eq. 4.10), α = β = 1: the sum of LinearConv and LogConv.

    >>> MixConv2d(3, 4, 3, padding=1)(torch.randn(2, 3, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    default_magnitude = magnitudes.Mix


class SphereLinear(_Preset, Linear):
    """The fully connected version of SphereConv (section 3.2.4), h = 1.

    >>> bool(SphereLinear(8, 4, bias=False)(torch.randn(2, 8)).abs().max() <= 1)
    True
    """

    default_magnitude = magnitudes.Sphere
