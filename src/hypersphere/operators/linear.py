"""Fully connected operators."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from ..angular import AngularLike
from .magnitudes import MagnitudeLike
from .operator_layer import OperatorLayer, apply_operator


class LinearOperator(OperatorLayer):
    """Mixin for a class whose forward is ``F.linear`` of its weight and bias."""

    def forward(self, input: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """Return h(‖w‖, ‖x‖)·g(θ) + b of each row."""
        return apply_operator(input, self.weight, self.bias, self.magnitude, self.angular)


class Linear(LinearOperator, nn.Linear):
    r"""``torch.nn.Linear`` with f(w, x) = h(‖w‖, ‖x‖)·g(θ) + b (3.2.4, 4.3.1): same arguments, same ``state_dict``.

    ``magnitude`` is one of ``hypersphere.magnitudes`` (default Sphere), ``angular`` one of ``hypersphere.angular``
    (default Cosine). Both also accept your own callables.

    >>> layer = Linear(8, 4)
    >>> x = torch.randn(3, 8)
    >>> torch.allclose(layer(x), layer(100 * x), atol=1e-6), list(layer.state_dict())
    (True, ['weight', 'bias'])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        magnitude: MagnitudeLike | None = None,
        angular: AngularLike | None = None,
    ):
        nn.Linear.__init__(self, in_features, out_features, bias, device, dtype)
        self.decouple(magnitude, angular)
