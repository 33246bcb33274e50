r"""The function that all operator layers compute, f(w, x) = h(‖w‖, ‖x‖)·g(θ) + b (eq. 4.3, 3.1), and their base class."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..angular import Angular, AngularLike, Cosine, as_angular
from ..geometry import disable_autocast
from ..geometry.fast_norms import MIN_NORM, normalize_rows, normalize_rows_once, per_neuron
from ..geometry.numerics import is_traced
from .epilogues import apply_affine, apply_angular_epilogue, apply_radius_epilogue, apply_scale_epilogue
from .magnitudes import Magnitude, MagnitudeLike, Sphere, as_magnitude
from .magnitudes.radius import WithRadius
from .patch_norms import bounded_rsqrt, bounded_sqrt, sum_squares
from .sphere_linear import apply_sphere_linear

MAX_UNTILED_OUTPUTS = 2**16
"""Number of outputs up to which tiling is not worth its cost, because all outputs fit into the cache."""


def apply_operator(
    x: Float[Tensor, "..."],
    weight: Float[Tensor, "neurons *rest"],
    bias: Float[Tensor, "neurons"] | None,
    magnitude: Magnitude,
    angular: Angular,
    *,
    product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = F.linear,
    patches: Callable[[Tensor], Tensor] | None = None,
    groups: int = 1,
    owned: bool = False,
) -> Float[Tensor, "..."]:
    r"""Return h(‖w‖, ‖x‖)·g(θ) + b for every neuron and every patch.

    If g is the cosine, h·cos θ is the inner product times h/(‖w‖‖x‖), which every magnitude knows in closed form. With
    h = ‖w‖‖x‖ the result equals that of the plain layer to the last bit. A zero patch gives b and finite gradients. A patch
    shorter than 10⁻⁶ counts as noise: its cosines decrease to 0 together with its length. Norms are computed in float32 or
    better. The squares of all entries must be representable there (entries from 10⁻¹⁹ to 10¹⁸ in float32); larger entries
    give NaN.

    Args:
        x: The inputs.
        weight: The neurons in rows.
        bias: b, or None for none.
        magnitude: h.
        angular: g.
        product: The plain layer as a function of inputs, weight and bias.
        patches: Function that sums the Σ x² of each group of channels over every patch; None for a fully connected layer.
        groups: Number of groups of a convolution.
        owned: Whether nothing else refers to the tensors that ``product`` returns, which are its value and the gradient of
            x, so that they may be overwritten. This holds for convolutions.

    Returns:
        The outputs, in the shape of those of ``product``.

    >>> x, w = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[2.0, 0.0]])
    >>> apply_operator(x, w, None, Sphere(), Cosine())
    tensor([[0.6000],
            [0.0000]])
    """
    if magnitude.homogeneous and isinstance(angular, Cosine):
        return product(x, magnitude.kernel(weight), bias)
    if not torch.is_grad_enabled() and _is_plain(x, weight):
        return _infer(x, weight, bias, magnitude, angular, product, patches, groups, owned)
    if (
        product is F.linear
        and weight.ndim == 2
        and type(magnitude) is Sphere
        and magnitude.weighted is None
        and _is_plain(x, weight, bias)
    ):
        output = apply_sphere_linear(x, weight, bias, angular, magnitude.alpha)
        if output is not None:
            return output
    dim = 1 - weight.ndim
    with contextlib.nullcontext() if x.is_meta else disable_autocast(x.device.type):
        square, x = _sum_squares_by_neuron(x, weight, patches, groups, owned)
        x_norm = bounded_sqrt(square)
    if isinstance(angular, Cosine):
        return _apply_cosine(x, weight, bias, x_norm, magnitude, product, owned)
    unit_weight, w_norm = normalize_rows(weight)
    y, x_inverse = product(x, unit_weight, None), bounded_rsqrt(square)
    h = magnitude(per_neuron(w_norm, -dim), x_norm, dim)
    if not angular.odd and (is_traced() or x.device.type != "cpu" or _has_short_patch(x_norm)):
        # A zero patch has no angle, and h·g need not be 0 there. The factor is 1 from MIN_NORM on.
        h = h * (x_norm / MIN_NORM).clamp_max(1)
    shift = None if bias is None else per_neuron(bias.to(h.dtype), -dim)
    output = apply_angular_epilogue(y, x_inverse, h, shift, angular)
    if output is None:
        output = apply_affine(angular(apply_affine(y, x_inverse, None, y.dtype), dim), h, shift, y.dtype)
    return output


class OperatorLayer(nn.Module, ABC):
    """Mixin that turns a layer of torch.nn into an operator: as the first base class it replaces ``forward``.

    >>> class Bounded(OperatorLayer, torch.nn.Linear):
    ...     def forward(self, input):
    ...         return apply_operator(input, self.weight, self.bias, self.magnitude, self.angular)
    >>> layer = Bounded(2, 1, bias=False)
    >>> layer.decouple(Sphere())
    >>> bool(layer(torch.tensor([[300.0, 400.0]])).abs() <= 1)
    True
    """

    default_magnitude: ClassVar[type[Magnitude]] = Sphere
    magnitude: Magnitude
    angular: Angular
    weight: Tensor
    bias: Any

    def decouple(self, magnitude: MagnitudeLike | None = None, angular: AngularLike | None = None) -> None:
        """Set h and g, by default ``default_magnitude`` and Cosine. Their parameters are created for this layer's weight."""
        self.magnitude, self.angular = bind_to_weight(magnitude, angular, self.weight, self.default_magnitude)

    def couple(self) -> None:
        """Remove the attributes that :meth:`decouple` added, before the layer gets its plain class back."""
        del self.magnitude, self.angular

    def decoupled_weights(self) -> Iterator[tuple[str, Tensor, Magnitude]]:
        """Yield each weight whose rows are neurons, with its attribute name and its magnitude."""
        yield "weight", self.weight, self.magnitude

    @abstractmethod
    def forward(self, input: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return h(‖w‖, ‖x‖)·g(θ) + b."""


def bind_to_weight(
    magnitude: MagnitudeLike | None, angular: AngularLike | None, weight: Tensor, default: type[Magnitude] = Sphere
) -> tuple[Magnitude, Angular]:
    """Return h and g for the neurons of this weight, on its device and in its dtype; by default ``default`` and Cosine."""
    h = default() if magnitude is None else as_magnitude(magnitude)
    g = Cosine() if angular is None else as_angular(angular)
    options: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
    return h.for_neurons(len(weight)).to(**options), g.for_neurons(len(weight)).to(**options)


def _is_plain(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Return whether the faster functions for eager mode on a CPU apply: one dtype, no autocast, and nothing is traced."""
    return (
        x.dtype is weight.dtype
        and (bias is None or bias.dtype is x.dtype)
        and x.dtype in (torch.float32, torch.float64)
        and x.device.type == "cpu"
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not is_traced()
    )


def _sum_squares_by_neuron(
    x: Tensor, weight: Tensor, patches: Callable[[Tensor], Tensor] | None, groups: int, owned: bool
) -> tuple[Tensor, Tensor]:
    """Return ‖x‖² of the patches that each neuron sees, and x for the product; see :func:`sum_squares`."""
    neurons, dim = weight.shape[0], 1 - weight.ndim
    square, x = sum_squares(x, dim, groups, owned)
    if patches is not None:
        square = patches(square)
    if 1 < groups < neurons:
        square = square.repeat_interleave(neurons // groups, dim)
    return square, x


def _infer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    magnitude: Magnitude,
    angular: Angular,
    product: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    patches: Callable[[Tensor], Tensor] | None,
    groups: int,
    owned: bool,
) -> Tensor:
    """Compute :func:`apply_operator` without a graph, in as few calls as possible.

    The time of a small layer is the number of calls, not arithmetic. Most batches have no patch shorter than ``MIN_NORM``.
    Reading the smallest sum of squares then allows plain roots instead of bounded ones. The normalized weight comes from a
    cache (:func:`~hypersphere.geometry.fast_norms.normalize_rows_once`).
    """
    dim = 1 - weight.ndim
    if weight.ndim == 2:
        square = torch.linalg.vecdot(x, x).unsqueeze(-1)
    else:
        square, _ = _sum_squares_by_neuron(x, weight, patches, groups, False)
    all_long = bool(square.amin().item() >= MIN_NORM**2)
    shift = bias if bias is None or dim == -1 else per_neuron(bias, -dim)
    is_cosine = isinstance(angular, Cosine)
    if type(magnitude) is Sphere and magnitude.weighted is None and (all_long or is_cosine or angular.odd):
        # h is the constant α, so only 1/‖x‖ is needed.
        x_inverse = square.rsqrt() if all_long else bounded_rsqrt(square)
        y = product(x, normalize_rows_once(weight)[0], None)
        if is_cosine:
            factor = x_inverse if magnitude.alpha == 1 else x_inverse.mul_(magnitude.alpha)
            return _scale(y, factor, shift, owned or product is F.linear)
        if y.numel() <= MAX_UNTILED_OUTPUTS:
            value = angular(y * x_inverse, dim)
            if magnitude.alpha != 1:
                value = value * magnitude.alpha
            return value if shift is None else value + shift
        h = square.new_full([1] * square.ndim, magnitude.alpha).expand_as(square)
        output = apply_angular_epilogue(y, x_inverse, h, shift, angular)
        return _scale(angular(y * x_inverse, dim), h, shift, False) if output is None else output
    x_norm = square.sqrt() if all_long else bounded_sqrt(square)
    if is_cosine:
        return _apply_cosine(x, weight, bias, x_norm, magnitude, product, owned)
    unit_weight, w_norm = normalize_rows_once(weight)
    y, x_inverse = product(x, unit_weight, None), square.rsqrt() if all_long else bounded_rsqrt(square)
    h = magnitude(per_neuron(w_norm, -dim), x_norm, dim)
    if not angular.odd and not all_long:
        h = h * (x_norm / MIN_NORM).clamp_max(1)
    output = apply_angular_epilogue(y, x_inverse, h, shift, angular) if y.numel() > MAX_UNTILED_OUTPUTS else None
    return _scale(angular(y * x_inverse, dim), h, shift, False) if output is None else output


def _scale(y: Tensor, factor: Tensor, shift: Tensor | None, owned: bool) -> Tensor:
    """Return y·factor + shift, in the memory of ``y`` if ``owned``."""
    if shift is None:
        return y.mul_(factor) if owned else y * factor
    return torch.addcmul(shift, y, factor, out=y if owned else None)


def _apply_cosine(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    x_norm: Tensor,
    magnitude: Magnitude,
    product: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    owned: bool,
) -> Tensor:
    """Return the product with the magnitude's kernel, times h/‖x‖, plus the bias; in tiles if possible."""
    dim = 1 - weight.ndim
    w_norm = normalize_rows(weight)[1] if magnitude.uses_weight_norm else x_norm.new_ones(1)
    y = product(x, magnitude.kernel(weight), None)
    shift = None if bias is None else per_neuron(bias.to(x_norm.dtype), -dim)
    if isinstance(magnitude, WithRadius) and magnitude.gain_by_neuron:
        radius = magnitude.radius(x_norm, dim)
        output = apply_radius_epilogue(y, x_norm, radius, shift, magnitude)
        return apply_affine(y, magnitude.gain_within(x_norm, radius), shift, y.dtype) if output is None else output
    factor = magnitude.ratio(per_neuron(w_norm, -dim), x_norm, dim)
    output = apply_scale_epilogue(y, factor, shift, owned=owned)
    return apply_affine(y, factor, shift, y.dtype) if output is None else output


def _has_short_patch(x_norm: Tensor) -> bool:
    return bool(x_norm.numel()) and x_norm.detach().amin().item() < MIN_NORM
