"""SphereNorm: the hyperspherical operator as a normalization."""

import math

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
    r"""Normalization by the patch and the weight, not by the batch: β·F(w, x) + γ with F = g(θ) in [−1, 1] (3.2.5).

    It wraps a layer. A convolution or Linear layer of torch.nn becomes a SphereConv with the same parameters, so an
    optimizer of these parameters stays valid. An operator is not changed.

    Args:
        layer: A convolution or Linear, plain or an operator.
        rescale: Learn β (from 1) and γ (from the layer's bias, or 0) for each neuron. Off by default: rescaled
            SphereNorm "does not seem to work well" (3.4.4 of Liu, 2020).
        batchnorm: Also apply BatchNorm to the outputs, which Liu (2020) finds better than either alone. BatchNorm has its
            own β and γ and would undo any other rescaling, so it cannot be combined with one.
        angular: g of a plain layer, the cosine by default.
        beta: Fixed β ("the rescaling parameters can be either learned or pre-fixed"); None is 1.
        gamma: Fixed γ that replaces the layer's bias; None keeps the bias.

    Raises:
        ValueError: If options contradict each other, or ``layer`` cannot be an operator.

    >>> layer = SphereNorm(torch.nn.Conv2d(3, 8, 3, padding=1), rescale=True)
    >>> x = torch.randn(2, 3, 6, 6)
    >>> torch.allclose(layer(x), layer(100 * x), atol=1e-5), [name for name, _ in layer.named_parameters()]
    (True, ['beta', 'gamma', 'layer.weight'])
    """

    beta: nn.Parameter | None
    gamma: nn.Parameter | None
    batchnorm: nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | None

    def __init__(
        self,
        layer: nn.Module,
        *,
        rescale: bool = False,
        batchnorm: bool = False,
        angular: AngularLike | None = None,
        beta: float | None = None,
        gamma: float | None = None,
    ):
        super().__init__()
        for name, value in (("beta", beta), ("gamma", gamma)):
            if value is not None and (rescale or batchnorm):
                raise ValueError(f"{name} is fixed, so rescale and batchnorm must be False, got {name}={value!r}")
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number or None, got {value!r}")
        if rescale and batchnorm:
            raise ValueError("rescale must be False with batchnorm=True, because BatchNorm rescales already, got True")
        if not isinstance(layer, OperatorLayer):
            convert(layer, magnitude=Sphere(), angular=angular, only=layer)
        elif angular is not None:
            raise ValueError(
                f"angular must be None for an operator; this {type(layer).__name__} has {layer.angular!r} already"
            )
        assert isinstance(layer, OperatorLayer)
        self.layer = layer
        weight, bias = layer.weight, layer.bias
        start = weight.new_zeros(weight.shape[0]) if bias is None else bias.detach().clone()
        if rescale or batchnorm or gamma is not None:
            layer.bias = None  # replaced by γ or by the bias of BatchNorm
        self.fixed_beta = 1.0 if beta is None else float(beta)
        self.fixed_gamma = 0.0 if gamma is None else float(gamma)
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
            return self._rescale_fixed(out)
        axes = self.layer.weight.ndim - 1
        return torch.addcmul(per_neuron(self.gamma, axes), out, per_neuron(self.beta, axes))

    def _rescale_fixed(self, out: Tensor) -> Tensor:
        """Return β·F + γ for fixed numbers. The output includes the layer's bias, if it has one, which is not scaled."""
        if self.fixed_beta == 1.0:
            return out + self.fixed_gamma if self.fixed_gamma else out
        bias = self.layer.bias
        if bias is None:
            return self.fixed_beta * out + self.fixed_gamma
        return self.fixed_beta * out + (1 - self.fixed_beta) * per_neuron(bias, self.layer.weight.ndim - 1)

    def extra_repr(self) -> str:
        """Return the fixed rescaling, if there is one."""
        fixed = (("beta", self.fixed_beta, 1.0), ("gamma", self.fixed_gamma, 0.0))
        return ", ".join(f"{name}={value:g}" for name, value, default in fixed if value != default)
