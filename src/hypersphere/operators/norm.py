"""SphereNorm: the hyperspherical operator as a way of normalization."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..angular import AngularLike
from ..geometry.fast_norms import per_neuron
from .conversion import convert
from .magnitudes import Sphere
from .operator_layer import OperatorLayer

_BATCHNORM: dict[int, type[nn.BatchNorm1d] | type[nn.BatchNorm2d] | type[nn.BatchNorm3d]] = {
    2: nn.BatchNorm1d,
    3: nn.BatchNorm1d,
    4: nn.BatchNorm2d,
    5: nn.BatchNorm3d,
}


class SphereNorm(nn.Module):
    r"""β·F(w, x) + γ with F = g(θ) in [−1, 1] (3.2.5): normalizes by the patch and the weight, not by the batch.

    It takes over the layer it normalizes: a convolution or Linear of torch.nn becomes a SphereConv (the same
    parameters, so an optimizer that has them goes on), an operator stays what it is.

    Args:
        layer: a convolution or Linear, plain or an operator.
        rescale: learn β (from 1) and γ (from the layer's bias, or 0) for each neuron. Off by default: rescaled
            SphereNorm "does not seem to work well" (3.4.4 of Liu, 2020).
        batchnorm: BatchNorm on the outputs as well, which Liu (2020) finds better than either alone. It has β and γ of
            its own, so ``rescale`` is refused beside it: it would be normalized away.
        angular: g of a plain layer, the cosine by default.

    >>> layer = SphereNorm(torch.nn.Conv2d(3, 8, 3, padding=1), rescale=True)
    >>> x = torch.randn(2, 3, 6, 6)
    >>> torch.allclose(layer(x), layer(100 * x), atol=1e-5), [name for name, _ in layer.named_parameters()]
    (True, ['beta', 'gamma', 'layer.weight'])
    """

    beta: nn.Parameter | None
    gamma: nn.Parameter | None
    batchnorm: nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | None

    def __init__(
        self, layer: nn.Module, *, rescale: bool = False, batchnorm: bool = False, angular: AngularLike | None = None
    ):
        super().__init__()
        if rescale and batchnorm:
            raise ValueError("rescale must be False beside batchnorm=True, whose own affine map rescales, got True")
        if not isinstance(layer, OperatorLayer):
            convert(layer, magnitude=Sphere(), angular=angular, only=layer)
        elif angular is not None:
            raise ValueError(
                f"angular belongs to a plain layer; this {type(layer).__name__} has its own, {layer.angular!r}"
            )
        assert isinstance(layer, OperatorLayer)
        self.layer = layer
        weight, bias = layer.weight, layer.bias
        start = weight.new_zeros(weight.shape[0]) if bias is None else bias.detach().clone()
        if rescale or batchnorm:
            layer.bias = None  # γ, or BatchNorm's mean, takes its place
        self.register_parameter("beta", None)
        self.register_parameter("gamma", None)
        self.batchnorm = None
        if batchnorm:
            self.batchnorm = _BATCHNORM[weight.ndim](weight.shape[0], device=weight.device, dtype=weight.dtype)
            self.batchnorm.bias.data.copy_(start)
        elif rescale:
            self.beta = nn.Parameter(torch.ones_like(start))
            self.gamma = nn.Parameter(start)

    def forward(self, input: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Normalize and rescale the outputs of the wrapped layer."""
        out = self.layer(input)
        if self.batchnorm is not None:
            return self.batchnorm(out)
        if self.beta is None or self.gamma is None:
            return out
        axes = self.layer.weight.ndim - 1
        return torch.addcmul(per_neuron(self.gamma, axes), out, per_neuron(self.beta, axes))
