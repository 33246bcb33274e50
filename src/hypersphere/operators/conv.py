"""Convolution operators in one, two and three dimensions."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

from ..angular import AngularLike
from .magnitudes import MagnitudeLike
from .operator_layer import OperatorLayer, apply_operator
from .patch_norms import sum_patch_squares

Size: TypeAlias = int | Sequence[int]


class ConvOperator(OperatorLayer):
    """Mixin for the convolutions of torch.nn; θ is the angle between a filter and the patch of its group's channels."""

    groups: int
    _conv_forward: Any

    def forward(self, input: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return h(‖w‖, ‖x‖)·g(θ) + b of each patch: ``(n, c, *in) → (n, neurons, *out)``, or without the batch."""
        return apply_operator(
            input,
            self.weight,
            self.bias,
            self.magnitude,
            self.angular,
            product=self._conv_forward,
            patches=lambda sums: sum_patch_squares(sums, self),  # type: ignore[arg-type]
            groups=self.groups,
            owned=True,
        )


class _ConvLayer(ConvOperator):
    """A constructor with the arguments of torch.nn's convolutions and those of an operator."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        *,
        magnitude: MagnitudeLike | None = None,
        angular: AngularLike | None = None,
    ):
        shape = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        super().__init__(*shape, bias, padding_mode, device, dtype)
        self.decouple(magnitude, angular)


class Conv1d(_ConvLayer, nn.Conv1d):
    """``torch.nn.Conv1d`` with the operator in place of the inner product; see :class:`Conv2d`.

    >>> Conv1d(3, 6, 5, padding="same")(torch.randn(2, 3, 20)).shape
    torch.Size([2, 6, 20])
    """


class Conv2d(_ConvLayer, nn.Conv2d):
    r"""``torch.nn.Conv2d`` with f(w, x) = h(‖w‖, ‖x‖)·g(θ) + b for the patch x under each filter w (eq. 3.1, 4.3).

    It has the arguments and the ``state_dict`` of torch's layer, plus ``magnitude`` (one of ``hypersphere.magnitudes``,
    default Sphere) and ``angular`` (one of ``hypersphere.angular``, default Cosine). Both also accept your own callables.
    All strides, paddings, padding modes, dilations and groups are supported. Padded zeros are entries of the patch.

    >>> from hypersphere.operators import magnitudes
    >>> layer = Conv2d(3, 16, 3, padding=1, magnitude=magnitudes.Tanh(radius=2.0))
    >>> out = layer(torch.randn(2, 3, 8, 8))
    >>> out.shape
    torch.Size([2, 16, 8, 8])
    """


class Conv3d(_ConvLayer, nn.Conv3d):
    """``torch.nn.Conv3d`` with the operator in place of the inner product; see :class:`Conv2d`.

    >>> Conv3d(2, 4, 3)(torch.randn(1, 2, 6, 6, 6)).shape
    torch.Size([1, 4, 4, 4, 4])
    """
