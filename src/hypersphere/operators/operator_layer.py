r"""One function behind every layer: f(w, x) = h(‖w‖, ‖x‖)·g(θ) + b (eq. 4.3, 3.1)."""

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
from .epilogues import apply_angular_epilogue, apply_radius_epilogue, apply_scale_epilogue
from .magnitudes import Magnitude, MagnitudeLike, Sphere, as_magnitude
from .magnitudes.radius import WithRadius
from .patch_norms import bounded_rsqrt, bounded_sqrt, sum_squares
from .sphere_linear import apply_sphere_linear

MAX_UNTILED = 2**16
"""Up to this many outputs stay in the cache anyway: they are computed at once, larger ones in tiles."""


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
    fresh: bool = False,
) -> Float[Tensor, "..."]:
    r"""Return h(‖w‖, ‖x‖)·g(θ) + b for every neuron and every patch.

    ``product(x, kernel, bias)`` is the plain layer; ``patches`` turns the Σ x² of each group of inputs into what each
    neuron sees at each position of the output, and is the identity for a fully connected layer. ``fresh`` promises that
    nobody else has the tensors that ``product`` gives, its value and the gradient of x, as it is with a convolution: they may
    then be overwritten.

    Where g is the cosine, h·cos θ is the inner product times h/(‖w‖‖x‖), which a magnitude knows in closed form; so h
    = ‖w‖‖x‖ is the plain layer to the last bit. A zero patch gives b, with finite gradients; a patch shorter than 10⁻⁶
    is taken as noise, and its angle fades to a right one. Norms are float32 or better; squares of entries must be
    representable there (10⁻¹⁹ to 10¹⁸ in float32), larger ones give NaN.

    >>> x, w = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[2.0, 0.0]])
    >>> apply_operator(x, w, None, Sphere(), Cosine())
    tensor([[0.6000],
            [0.0000]])
    """
    if magnitude.homogeneous and isinstance(angular, Cosine):
        return product(x, magnitude.kernel(weight), bias)
    if not torch.is_grad_enabled() and _is_plain(x, weight):
        return _infer(x, weight, bias, magnitude, angular, product, patches, groups, fresh)
    if weight.ndim == 2 and product is F.linear and type(magnitude) is Sphere and magnitude.weighted is None:
        found = apply_sphere_linear(x, weight, bias, angular, magnitude.alpha) if _is_plain(x, weight, bias) else None
        if found is not None:
            return found
    neurons, dim = weight.shape[0], 1 - weight.ndim
    with contextlib.nullcontext() if x.is_meta else disable_autocast(x.device.type):
        sums, x = sum_squares(x, dim, groups, fresh)
        square = sums if patches is None else patches(sums)
        if 1 < groups < neurons:
            square = square.repeat_interleave(neurons // groups, dim)
        x_norm = bounded_sqrt(square)
    if isinstance(angular, Cosine):
        w_norm = normalize_rows(weight)[1] if magnitude.uses_weight_norm else x_norm.new_ones(1)
        y = product(x, magnitude.kernel(weight), None)
        return _by_cosine(y, per_neuron(w_norm, -dim), x_norm, bias, magnitude, dim, fresh)
    what, w_norm = normalize_rows(weight)
    y, over = product(x, what, None), bounded_rsqrt(square)
    h = magnitude(per_neuron(w_norm, -dim), x_norm, dim)
    if not angular.odd and (is_traced() or x.device.type != "cpu" or _any_shorter(x_norm, MIN_NORM)):
        # h and g may both be something at a zero patch, which has no angle; the factor is 1 from MIN_NORM on.
        h = h * (x_norm / MIN_NORM).clamp_max(1)
    shift = None if bias is None else per_neuron(bias.to(h.dtype), -dim)
    at_once = apply_angular_epilogue(y, over, h, shift, angular)
    return _affine(angular(_affine(y, over, None, dim), dim), h, bias, dim) if at_once is None else at_once


class OperatorLayer(nn.Module, ABC):
    """What makes a layer of torch.nn an operator: put before that layer in a class's bases, it replaces ``forward``.

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
        """Take h and g, by default the class's own; what they learn is of this layer's size, dtype and device."""
        magnitude = self.default_magnitude() if magnitude is None else as_magnitude(magnitude)
        self.magnitude, self.angular = bind_to_weight(
            magnitude, Cosine() if angular is None else as_angular(angular), self.weight
        )

    def couple(self) -> None:
        """Drop what :meth:`decouple` has added, before the class becomes the plain one again."""
        del self.magnitude, self.angular

    def decoupled_weights(self) -> Iterator[tuple[str, Tensor, Magnitude]]:
        """Return the weights whose rows are this module's neurons, by attribute name, each with the magnitude that uses it."""
        yield "weight", self.weight, self.magnitude

    @abstractmethod
    def forward(self, input: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return h(‖w‖, ‖x‖)·g(θ) + b."""


def bind_to_weight(magnitude: Magnitude, angular: Angular, weight: Tensor) -> tuple[Magnitude, Angular]:
    """Return h and g for the neurons of this weight."""
    place: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
    neurons = weight.shape[0]
    return magnitude.for_neurons(neurons).to(**place), angular.for_neurons(neurons).to(**place)


def _is_plain(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Return whether the short ways apply: eager, on a CPU, and no conversion of dtypes."""
    return (
        x.dtype is weight.dtype
        and (bias is None or bias.dtype is x.dtype)
        and x.dtype in (torch.float32, torch.float64)
        and x.device.type == "cpu"
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not is_traced()
    )


def _infer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    magnitude: Magnitude,
    angular: Angular,
    product: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    patches: Callable[[Tensor], Tensor] | None,
    groups: int,
    fresh: bool,
) -> Tensor:
    """Compute :func:`apply_operator` without a graph, in as few calls as possible.

    A small layer is limited by the number of calls, not by arithmetic. Most batches have no patch shorter than
    ``MIN_NORM``; one look at the smallest sum of squares then replaces the bounded roots by plain ones. The normalized
    weight comes from a cache (:func:`~hypersphere.geometry.fast_norms.normalize_rows_once`).
    """
    neurons, dim = weight.shape[0], 1 - weight.ndim
    if weight.ndim == 2:
        square = torch.linalg.vecdot(x, x).unsqueeze(-1)
    else:
        square = sum_squares(x, dim, groups)[0]
        square = square if patches is None else patches(square)
        if 1 < groups < neurons:
            square = square.repeat_interleave(neurons // groups, dim)
    regular = bool(square.amin().item() >= MIN_NORM**2)
    shift = bias if bias is None or dim == -1 else per_neuron(bias, -dim)
    by_cosine = isinstance(angular, Cosine)
    if type(magnitude) is Sphere and magnitude.weighted is None and (regular or by_cosine or angular.odd):
        # h is a number, so nothing but 1/‖x‖ is needed.
        factor = square.rsqrt() if regular else bounded_rsqrt(square)
        y = product(x, normalize_rows_once(weight)[0], None)
        if by_cosine:
            factor = factor if magnitude.alpha == 1 else factor.mul_(magnitude.alpha)
            return _scale(y, factor, shift, fresh or product is F.linear)
        if y.numel() <= MAX_UNTILED:
            value = angular(y * factor, dim)
            if magnitude.alpha != 1:
                value = value * magnitude.alpha
            return value if shift is None else value + shift
        h = square.new_full([1] * square.ndim, magnitude.alpha).expand_as(square)
        at_once = apply_angular_epilogue(y, factor, h, shift, angular)
        return _scale(angular(y * factor, dim), h, shift, False) if at_once is None else at_once
    x_norm = square.sqrt() if regular else bounded_sqrt(square)
    if by_cosine:
        w_norm = normalize_rows(weight)[1] if magnitude.uses_weight_norm else x_norm.new_ones(1)
        y = product(x, magnitude.kernel(weight), None)
        return _by_cosine(y, per_neuron(w_norm, -dim), x_norm, bias, magnitude, dim, fresh)
    what, w_norm = normalize_rows_once(weight)
    y, over = product(x, what, None), square.rsqrt() if regular else bounded_rsqrt(square)
    h = magnitude(per_neuron(w_norm, -dim), x_norm, dim)
    if not angular.odd and not regular:
        h = h * (x_norm / MIN_NORM).clamp_max(1)
    if y.numel() > MAX_UNTILED:
        at_once = apply_angular_epilogue(y, over, h, shift, angular)
        if at_once is not None:
            return at_once
    return _scale(angular(y * over, dim), h, shift, False)


def _scale(y: Tensor, factor: Tensor, shift: Tensor | None, ours: bool) -> Tensor:
    """Return y·factor + shift; ``ours`` says that ``y`` may be overwritten."""
    if shift is None:
        return y.mul_(factor) if ours else y * factor
    return torch.addcmul(shift, y, factor, out=y if ours else None)


def _by_cosine(
    y: Tensor, w_norm: Tensor, x_norm: Tensor, bias: Tensor | None, magnitude: Magnitude, dim: int, fresh: bool
) -> Tensor:
    """Return y·(h/‖x‖) + bias, in tiles if possible."""
    shift = None if bias is None else per_neuron(bias.to(x_norm.dtype), -dim)
    if isinstance(magnitude, WithRadius) and magnitude.gain_by_neuron:
        radius = magnitude.radius(x_norm, dim)
        at_once = apply_radius_epilogue(y, x_norm, radius, shift, magnitude)
        return _affine(y, magnitude.gain_within(x_norm, radius), bias, dim) if at_once is None else at_once
    factor = magnitude.ratio(w_norm, x_norm, dim)
    at_once = apply_scale_epilogue(y, factor, shift, ours=fresh)
    return _affine(y, factor, bias, dim) if at_once is None else at_once


def _any_shorter(x_norm: Tensor, length: float) -> bool:
    return bool(x_norm.numel()) and x_norm.detach().amin().item() < length


def _affine(y: Tensor, factor: Tensor, bias: Tensor | None, dim: int) -> Tensor:
    """Return y·factor + bias in the factor's precision and y's dtype, in one pass."""
    wide = y.to(factor.dtype)
    if bias is None:
        return (wide * factor).to(y.dtype)
    return torch.addcmul(per_neuron(bias.to(factor.dtype), -dim), wide, factor).to(y.dtype)
